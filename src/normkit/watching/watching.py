"""The course of a watched training: which steps are sampled, and where the samples go."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from normkit import check
from normkit.columns import number_of
from normkit.watching import facts, onset, sample, taps, trials, writers
from normkit.watching.batch import Batch
from normkit.watching.diagnosis import NO_SAMPLE, Diagnosis, all_signs
from normkit.watching.history import BAD, LOSS, PEAK, History
from normkit.watching.onset import Onset
from normkit.watching.rounds import Rounds
from normkit.watching.sample import FAMILIES, HEARD, Row, Sample, is_skipped
from normkit.watching.seen import Seen
from normkit.watching.signals import data, mode, noise, output, parameters
from normkit.watching.signals.parameters import Spectra, carried, unseen_rows
from normkit.watching.sites import SIGNALS
from normkit.watching.store import LARGEST, MEAN, Column, Store

NOTES = 50  # shown at most
SOON = 5  # steps between two samples at the beginning
SHARE = 0.006  # of the parameters' memory that samples may take; with what else is kept it stays below 1 %
FEWEST, MOST = 64, 256  # samples that are held, however small or large the model is


class Watch(Seen):
    """Looks at a model on every n-th step of its training; :func:`watch` makes one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        every: int = 20,
        signals: Iterable[str] = FAMILIES,
        to: Any = None,
        keep: int | None = None,
        start: int = 0,
    ):
        self.model, self.every = model, check.size("watch", "every", every)
        self.optimizers = facts.optimizers("watch", model, optimizer)
        self.families = [check.choice("watch", "signals", name, FAMILIES) for name in signals]
        self.store = Store(MOST if keep is None else check.size("watch", "keep", keep, 8), all_signs())
        self.room = None if keep is not None else SHARE * sum(p.numel() * p.element_size() for p in model.parameters())
        self.step = self.before = check.size("watch", "start", start, 0)
        self.facts = facts.of(model, self.optimizers, self.every)
        self.trained = facts.trained(model, self.optimizers)
        self.notes: list[str] = []
        self.writers = writers.writers_of(to)
        self.spectra = Spectra()
        self.sample: Sample | None = None
        self.batch: Batch | None = None  # the last one that was looked at
        self.tries = True  # whether remedies are tried on copies
        self.started = False
        self.began = self.took = 0.0  # when the last sampled step was armed, and the seconds until it ended
        self.pending: tuple[int, Row] | None = None
        self.losses: tuple[Tensor, int, Tensor] | None = None  # sum, count and largest since the last sample
        self.onset, self.rounds = Onset(), Rounds(len(self.optimizers))
        self.unread: set[int] = set()  # whose gradients are yet to be read
        self.handles: list[Any] = []

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Watch:
        """Begin to watch; :meth:`stop` ends it, as leaving a ``with`` does."""
        if self.handles:
            return self
        self.started = True
        self.handles = sample.taps_on(self.model, self.families)
        if self.optimizers:
            self.rounds = Rounds(len(self.optimizers))
            self.handles += [*self._hooks(), *self.onset.listen(self.model)]
            self._safely(self._arm, self.step + 1)
        else:
            self.handles.append(taps.hook_before(self.model, lambda m, _: self._safely(self._count_call, m)))
        return self

    def stop(self) -> None:
        """Take all hooks off. What was seen stays, also of a training that was broken off."""
        for handle in reversed(self.handles):
            handle.remove()
        self.handles = []
        if self.sample is not None:
            self.sample.detach()
            if not self.optimizers and not self.sample.empty:
                self._safely(self._close_sample)
        self.sample = None
        self._safely(self._flush)
        for writer in self.writers:
            self._safely(writer.close, self)

    def gradients(self) -> None:
        """Read the gradients now, as before they are clipped; else they are read at the optimizer's step."""
        if self.sample is not None:
            self._safely(self.sample.gradients)

    def loss(self, value: float | Tensor) -> None:
        """Take the loss of a step, before the optimizer's step; a tensor is not waited for.

        A model that gives its loss itself, as a lone number or under the name ``loss``, need not be helped.
        """
        value = check.plain(value)
        if not isinstance(value, int | float | Tensor) or isinstance(value, bool):
            raise TypeError(f"watch: loss must be a number or a tensor of one, not {type(value).__name__}")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"watch: loss must be a number or a tensor of one, not one of shape {tuple(value.shape)}")
        value = value if isinstance(value, Tensor) else torch.tensor(float(value), device="cpu")
        number = value.detach().float().reshape(())
        total, count, peak = self.losses or (torch.zeros_like(number), 0, number)
        self.losses = total + number, count + 1, torch.maximum(peak, number)

    def note(self, text: str) -> None:
        """Remember what could not be seen, once."""
        if text not in self.notes and len(self.notes) < NOTES:
            self.notes.append(text)

    @contextmanager
    def sampled(self, step: int) -> Iterator[None]:
        """Look at what is done inside: a pass forward and backward, and a step of the optimizer where there is one.

        For a trainer that counts its steps itself and chooses which are looked at; it does not :meth:`start` the watch.
        """
        self.step = step
        self._safely(self._look)
        hooks = [*self._hooks(counts=False)]
        try:
            yield
            self.gradients()
            self._safely(self._close_sample)
        finally:
            for hook in hooks:
                hook.remove()
            if self.sample is not None:
                self.sample.detach()
            self.sample = None

    def flush(self) -> None:
        """Bring the last sample to the CPU, and hand it to the writers; here the device is waited for."""
        self._safely(self._flush)

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen as tensors and plain values, for the checkpoint of a training that is to go on."""
        self.flush()
        kept = {"columns": [list(column) for column in self.store.columns], "words": list(self.store.words)}
        kept |= {"steps": list(self.store.steps), "table": self.store.table(), "keep": self.store.keep}
        kept["signs"] = self.store.known_signs()
        metadata = {"step": self.step, "notes": list(self.notes), "dtypes": dict(self.facts.get("dtypes", {}))}
        return {**kept, **metadata, "vectors": dict(self.spectra.vectors)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was seen before; to be called before the watch starts."""
        self.store, self.pending, self.losses = Store(state["keep"], all_signs()), None, None
        columns = [(where, what) for where, what in state["columns"]]
        for step, row in zip(state["steps"], state["table"], strict=True):
            self.store.add(step, columns, state["words"], row)
        self.store.remember_signs(state["signs"])
        self.before = state["step"]
        self.step, self.notes, self.facts["dtypes"] = state["step"], list(state["notes"]), dict(state["dtypes"])
        self.spectra.vectors = dict(state["vectors"])

    def history(self) -> History:
        """Return what was seen so far; here the device is waited for."""
        self._safely(self._look_again)
        self.flush()
        return History(self.store, self.facts, self.notes)

    def diagnosis(self) -> Diagnosis:
        """Return what goes wrong, what shows it, and what would help, tried on a copy where that costs little."""
        diagnosis = super().diagnosis()
        if diagnosis.seen == NO_SAMPLE:
            return replace(diagnosis, notes=(*diagnosis.notes, self._why_nothing()))
        return trials.try_remedies(diagnosis, self)

    def _why_nothing(self) -> str:
        """Say why there is no sample."""
        if not self.started:
            return "any step: the watch never began; write `with nk.watch(model, optimizer) as seen:` or `seen.start()`"
        steps = self.step - self.before
        if steps:
            return f"any step: none of {number_of(steps, 'step')} was due; a smaller `every` looks at more"
        return f"any step: {'the optimizer made none' if self.optimizers else 'the model was not called in training'}"

    def _safely(self, act: Callable[..., Any], *given: Any) -> None:
        """Do something for the watch's own sake: what goes wrong is noted, and the training goes on."""
        try:
            with torch.no_grad():
                act(*given)
        except Exception as error:
            self.note(f"at step {self.step}: {type(error).__name__}: {error}")

    def _hooks(self, counts: bool = True) -> Iterator[Any]:
        """Read what each step of an optimizer goes by; ``counts``: the steps are also counted, and measured."""
        for number, one in enumerate(self.optimizers):
            yield one.register_step_pre_hook(partial(self._begin_step, number, counts))
            if counts:
                yield one.register_step_post_hook(partial(self._after_step, number))

    def _begin_step(self, number: int, counts: bool, own: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Read before a step; what a closure makes within it, at the first call."""
        if is_inner(own):
            return None
        if counts:
            self._safely(self._end_round, self.rounds.before(number))
        if self.sample is not None:
            self._safely(self.sample.keep, number)
        self.unread.add(number)
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._read_after(kwargs["closure"], number)}
        if len(args) > 1 and callable(args[1]):  # the first one is the optimizer
            return (args[0], self._read_after(args[1], number), *args[2:]), kwargs
        self._read_step(number)
        return None

    def _read_after(self, closure: Callable[..., Any], number: int) -> Callable[..., Any]:
        def closure_of_step(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            self._read_step(number)
            return result

        return closure_of_step

    def _read_step(self, number: int) -> None:
        """Read the gradients that a step goes by, unless they were."""
        if number in self.unread:
            self.unread.discard(number)
            self._safely(self.onset.step, self.step + 1, self.optimizers, number)
            if self.sample is not None:
                self._safely(self.sample.before_step, number)

    def _after_step(self, number: int, own: Any, *_: Any) -> None:
        if is_inner(own):
            return
        self._read_step(number)  # where the closure was not called
        if self.sample is not None:
            self._safely(self.sample.after_step, number)
        self._safely(self._end_round, int(self.rounds.after(number)))

    def _end_round(self, steps: int) -> None:
        """Count, and close the sample of what has ended; the next step may be due."""
        if not steps:
            return
        self.step += steps
        if self.sample is not None:
            self._safely(self._close_sample)
        self._arm(self.step + 1)

    def _count_call(self, module: nn.Module) -> None:
        """Without an optimizer each call of the model in training is a step, which ends the one before."""
        if is_skipped(module):
            return
        if self.sample is not None:
            self._close_sample()
        self.step += 1
        self._arm(self.step)
        if self.sample is not None:
            self.sample.catch_gradients()

    def _arm(self, step: int) -> None:
        """Put hooks on where a step is due."""
        if is_due(step, self.every):
            self._look()

    def _look(self) -> None:
        self.began = time.monotonic()
        self.sample = Sample(self.model, self.families, self.note, self.optimizers)

    def _close_sample(self) -> None:
        """Make a row of the sampled step. The one before it, long worked out, is brought to the CPU."""
        sample, self.sample = self.sample, None
        if sample is not None:
            sample.detach()
            self._flush()
            self._look_again()
            self.facts["dtypes"] = {**self.facts.get("dtypes", {}), **sample.dtypes}
            self.facts["widths"] = {**self.facts.get("widths", {}), **sample.widths}
            self.batch, self.took = sample.batch or self.batch, time.monotonic() - self.began
            row = sample.row(self.spectra, facts.rates(self.optimizers))
            for read in unseen_rows(self.model, self.optimizers) + carried(self.model, self.optimizers):
                row.add([(facts.bare_name(name), read[1]) for name in read[0]], [MEAN] * len(read[0]), read[2])
            row.add(*self._mean_loss(sample))
            self.pending = self.step, row

    def _look_again(self) -> None:
        """Bring the facts up to date where other parameters are trained than before."""
        trained = facts.trained(self.model, self.optimizers)
        if trained != self.trained:
            self.trained, self.facts = trained, facts.again(self.facts, self.model, self.optimizers)

    def _mean_loss(self, sample: Sample) -> tuple[list[Column], list[str], Tensor]:
        """Return the mean and the largest loss since the last sample, else the one that the model gave."""
        losses, self.losses = self.losses, None
        if losses is not None:
            values = torch.stack([losses[0] / losses[1], losses[2]])
        elif sample.loss is not None:
            values = torch.stack([sample.loss, sample.loss])
        elif sample.output is not None:
            values = sample.output[:1].repeat(2)
        else:
            return [], [], torch.zeros(0, device="cpu")
        return [(LOSS, LOSS), (LOSS, PEAK)], [MEAN, LARGEST], values

    def _flush(self) -> None:
        pending, self.pending = self.pending, None
        if pending is None:
            return
        step, row = pending
        if self.optimizers:
            row.add([(BAD, what) for what in onset.NUMBERS], onset.NUMBERS.values(), self.onset.look())
        values = row.values()
        self.store.add(step, row.columns, row.words, values)
        if self.room is not None:
            fitting = int(self.room / (len(self.store.columns) * self.store.rows[-1].element_size() or 1))
            self.store.keep = min(MOST, max(FEWEST, fitting))
        failed = []
        for writer in list(self.writers):
            try:
                writer.write(self, step, row, values)
            except Exception as error:
                self.writers.remove(writer)
                failed.append(f"from step {step} on nothing is written by {writer}: {error}")
                self.note(failed[-1])
        for note in failed:
            warnings.warn(f"watch: {note}", stacklevel=2)


def is_inner(optimizer: Optimizer) -> bool:
    """Whether the hook that asks belongs to a step that the optimizer's own step calls, as by ``super().step()``.

    torch calls the hooks of both. Counting would not do: after an error within a step there is no second hook.
    """
    caller = sys._getframe(2)
    outer = caller.f_back
    while outer is not None and not (outer.f_code is caller.f_code and outer.f_locals.get("self") is optimizer):
        outer = outer.f_back
    return outer is not None


def number_names() -> set[str]:
    """Return the names of all numbers that a watch may read, whatever the model."""
    named = [signal.numbers for signal in SIGNALS.values()] + [numbers for _, _, numbers in HEARD.values()]
    of_batches = (data.NUMBERS, data.FEATURES, data.FED, mode.NUMBERS, output.NUMBERS, noise.NUMBERS)
    return {LOSS, PEAK, "lr"}.union(*named, *of_batches, parameters.NUMBERS, onset.NUMBERS)


def is_due(step: int, every: int) -> bool:
    """Whether a step is looked at: the first, every n-th, and at the beginning more, at most a tenth of the step apart.

    >>> [step for step in range(1, 500) if is_due(step, 100)][:9], [s for s in range(100, 300) if is_due(s, 100)]
    ([1, 5, 10, 15, 20, 25, 30, 35, 40], [100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 220, 240, 260, 280])
    """
    gap = SOON * 2 ** max(0, (step // (10 * SOON)).bit_length() - 1)
    return step == 1 or step % every == 0 or (gap < every and step % gap == 0)


def watch(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    every: int = 20,
    signals: Iterable[str] = FAMILIES,
    to: Any = None,
    keep: int | None = None,
    start: int = 0,
) -> Watch:
    """Watch a training: what is read of the model on every n-th step, and what goes wrong in it.

    For whoever wonders why a run is unstable, slow or dead. Losses are the same to the last bit with and without it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    >>> with watch(model, optimizer, every=2) as seen:
    ...     for _ in range(4):
    ...         model(torch.ones(3, 4)).sum().backward()
    ...         optimizer.step()
    >>> seen.history().steps
    [1, 2, 4]
    >>> seen.history().names("rms")
    ['0', '1', '2']

    Args:
        model: as it is trained; within DDP or Accelerate the model itself or what wraps it.
        optimizer: whose steps are counted, or several, as of a critic and an actor: then a step ends when each has
            made one. Without one each call of the model in training counts as a step, and updates are not seen.
        every: how often a step is looked at; the first one is as well, and until then every fifth, from the hundredth
            on every tenth, and so on. So a beginning is known to a tenth of its step.
        signals: of ``activations``, ``attention``, ``gradients``, ``updates``, ``spectra``.
        to: where samples also go while it runs: a folder, or a file such as ``run.jsonl``, which gets a line of JSON
            each and which ``normkit watch`` shows, or a writer of :mod:`normkit.watching.writers`, or several.
        keep: how many samples are held, 8 at least, spread over the whole run; neighbours are joined as they grow old.
            By default as many as take 0.6 % of the parameters' memory, but 64 to 256.
        start: how many steps were done before, where a training goes on.

    Returns an object to enter, ``seen``: ``seen.diagnosis()``, ``seen.plot()``, ``seen.history()``, ``seen.save()``.
    """
    return Watch(model, optimizer, every=every, signals=signals, to=to, keep=keep, start=start)
