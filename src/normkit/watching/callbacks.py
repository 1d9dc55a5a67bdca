"""The watch where a trainer owns the loop: transformers' Trainer, Lightning, Accelerate."""

from __future__ import annotations

from typing import Any

import torch

from normkit.optional import library
from normkit.watching.watching import Watch


def trainer_callback(**options: Any) -> Any:
    """Return a callback for transformers' ``Trainer``, whose ``seen`` is the watch.

    ``options`` are those of ``nk.watch`` but ``start``, which the trainer tells. It begins when the training does, with
    the optimizer that the trainer has made, and ends with it::

        watching = trainer_callback(every=50)
        Trainer(model, arguments, train_dataset=data, callbacks=[watching]).train()
        print(watching.seen.diagnosis())

    A training that ctrl-C or an error breaks off does not end it: call ``watching.seen.stop()`` then. The next training
    does so as well.
    """
    transformers = library("transformers")

    class Watching(transformers.TrainerCallback):  # type: ignore[name-defined]
        """Watches a training from its begin to its end."""

        seen: Watch | None = None

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
            """Begin."""
            if self.seen is not None and self.seen.handles:  # of a training that was broken off
                self.seen.stop()
            own = options_of(state.is_world_process_zero, options)
            self.seen = Watch(model, optimizer, start=state.global_step, **own).start()

        def on_train_end(self, args, state, control, **_):
            """End."""
            if self.seen is not None:
                self.seen.stop()

    return Watching()


def lightning_callback(**options: Any) -> Any:
    """Return a callback for Lightning's ``Trainer``, whose ``seen`` is the watch.

    ``options`` are those of ``nk.watch`` but ``start``, which the trainer tells. It ends also where the training is
    broken off::

        watching = lightning_callback(every=50)
        lightning.Trainer(callbacks=[watching]).fit(module, loader)
    """
    lightning = library("lightning")

    class Watching(lightning.Callback):  # type: ignore[name-defined]
        """Watches a training from its begin to its end."""

        seen: Watch | None = None

        def on_train_start(self, trainer, pl_module):
            """Begin."""
            own = options_of(trainer.is_global_zero, options)
            self.seen = Watch(pl_module, list(trainer.optimizers), start=trainer.global_step, **own)
            self.seen.tries = False  # a copy of the module would be one of its trainer as well
            self.seen.start()

        def on_before_backward(self, trainer, pl_module, loss):
            """Take the loss as it was before Lightning divided it by the micro-batches and scaled it."""
            if self.seen is not None:
                scaler = getattr(trainer.precision_plugin, "scaler", None)
                scale = 1 if scaler is None else scaler.scale(torch.ones_like(loss))
                self.seen.loss(loss.detach() / scale * trainer.accumulate_grad_batches)

        def on_train_end(self, trainer, pl_module):
            """End."""
            if self.seen is not None:
                self.seen.stop()

        def on_exception(self, trainer, pl_module, exception):
            """End early."""
            self.on_train_end(trainer, pl_module)

    return Watching()


def watch_accelerated(accelerator: Any, model: Any, optimizer: Any, **options: Any) -> Watch:
    """Return a watch of what ``accelerator.prepare`` has returned; of several processes only the first writes.

    ::

        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        with watch_accelerated(accelerator, model, optimizer, to="watch.jsonl") as seen:
            train()
    """
    own = options_of(accelerator.is_main_process, options)
    return Watch(accelerator.unwrap_model(model), optimizer, **own)


def options_of(is_first: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a process' watch: of several processes only the first one writes."""
    return options if is_first else {**options, "to": None}
