"""A training loop of the user's own, as one run among the others.

It is called as ``train(build, seed, log)``: ``build`` gives what the variant names, ``log`` writes down how it goes,
and what is returned is the final measure. A run that was stopped begins again: what it had come to, only the user's
function knows.

>>> def train(build, seed, log):
...     model = build(Net())            # its norms exchanged; or build(width), a norm
...     optimizer = build.optimizer(model, lr=0.001)
...     for step, (x, y) in enumerate(batches(seed), 1):
...         loss = ...
...         log(step, loss=loss)        # and, now and then, log(step, val_loss=...)
...     return validation_loss(model)
"""

from __future__ import annotations

import inspect
import math
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from normkit.check import plain
from normkit.lab import files, logs
from normkit.lab.clock import TRAINING
from normkit.lab.plan import data, measures, optimizers
from normkit.lab.plan.exchanges import exchange
from normkit.lab.plan.handed import in_words
from normkit.lab.plan.plan import Plan, Run, same
from normkit.lab.plan.settings import Settings, spell
from normkit.lab.plan.variants import NUMBERS, ORIGINAL, SLOTS, Variant
from normkit.lab.training.memory import peak_memory, reset_peak
from normkit.surgery.replacement.fits import maker

GIVEN = ("norm", "optimizer")  # the slots of a variant that ``build`` gives
EXTRA = ("lr", "steps", "seconds", "device")  # what the function is given as well if it has such arguments
VALIDATION = "val_"  # begins the names of what is logged of held-out data
OF_THE_LOG = ("event", "seconds", "tokens", "unit", "val_event", "val_step")  # which it writes itself
UNIT = "steps"
NO_TWIN = "the training loop makes its start from the seed, so that a twin would be the same run"


class Stop(BaseException):
    """The run is asked to stop; no Exception, so that the user's function does not catch it."""


class Build:
    """What a variant names, to build with: ``build(width)`` is a norm; ``build(model)`` exchanges those of a model.

    variant: the variant itself.
    """

    def __init__(self, variant: Variant):
        self.variant = variant
        self.used: set[str] = set()

    def __call__(self, of: Any, channels_first: bool = False, example: Any = None) -> nn.Module:
        """Return a norm of so many features, over the last axis or over the second, or exchange those of a model.

        example: an input of the model, which tells the widths of norms that have no parameters.
        """
        self.used.add("norm")
        if isinstance(of, nn.Module):
            if self.variant.norm != ORIGINAL:
                return exchange(of, self.variant.norm, tuple(type(part) for part in of.modules()), lambda: example)
            return of
        of = plain(of)
        if not isinstance(of, int):
            raise TypeError(f"build takes a width, for a norm, or a model, whose norms it exchanges; not {of!r}")
        if self.variant.norm == ORIGINAL:
            raise ValueError(f"build({of}): {ORIGINAL!r} names no norm; it leaves a model as it is: build(model)")
        return maker(self.variant.norm, channels_first)(of)

    def optimizer(self, model: nn.Module, lr: float, weight_decay: float = 0.0) -> torch.optim.Optimizer:
        """Return the variant's optimizer for a model; weight decay is for matrices alone."""
        self.used.add("optimizer")
        return optimizers.make_optimizer(self.variant.optimizer, model, lr, weight_decay)


class Log:
    """What a training loop writes down, ``log(step, loss=...)``; ``val_`` before a name says that data are held out."""

    def __init__(self, log: logs.Log, stop: Callable[[], bool]):
        self.log, self.stop = log, stop
        self.step, self.last, self.best, self.held_out = 0, math.nan, math.inf, False
        self.began, self.worked = time.perf_counter(), time.process_time()

    def __call__(self, step: int, **values: Any) -> None:
        """Write numbers of a step."""
        if reserved := [name for name in OF_THE_LOG if name in values]:
            raise ValueError(f"log: {', '.join(OF_THE_LOG)} are the log's own; give {reserved[0]!r} another name")
        numbers = {name: _number(name, value) for name, value in values.items()}
        self.step = _whole(step)
        held_out = {name.removeprefix(VALIDATION): v for name, v in numbers.items() if name.startswith(VALIDATION)}
        own = {name: v for name, v in numbers.items() if not name.startswith(VALIDATION)}
        if own:
            spent = {"seconds": round(self.seconds, 4), "tokens": self.step, "unit": UNIT}
            self.log.write(logs.STEP, **spent, **logs.nan_to_none(own), step=self.step)
        if held_out:
            self.log.write(logs.EVAL, **logs.nan_to_none(held_out), step=self.step)
        if "loss" in held_out:
            self.last, self.best = held_out["loss"], min(self.best, held_out["loss"])
            self.held_out = True
        elif not self.held_out:
            self.last = own.get("loss", self.last)
        if self.stop():
            raise Stop

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.perf_counter() - self.began


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"log: {name} must be a number, not {value!r}") from error


def _whole(step: Any) -> int:
    if isinstance(step, bool) or int(step) != step or step < 0:
        raise ValueError(f"log: the step must be a whole number from 0, not {step!r}")
    return int(step)


def train(run: Run, settings: Settings, folder: files.Folder, stop: Callable[[], bool]) -> dict[str, Any]:
    """Call the user's function for a run, and return the last line of its log."""
    log = open_log(run, settings, folder)
    logger = Log(log, stop)
    reset_peak()
    try:
        with data.chances(run.seed):
            value = call_function(run, settings, logger)
    except Stop:
        return log.end(logs.INTERRUPTED, error=None)
    except Exception as error:
        if files.is_full(error):
            raise
        return write_crash(log, error)
    return write_end(log, logger, settings, value)


def open_log(run: Run, settings: Settings, folder: files.Folder) -> logs.Log:
    """Open the log anew; one that is damaged, or of another run, is set aside."""
    path, recipe = folder.log(run.name), run.recipe(settings)
    existing = logs.read(path)
    damaged = existing.damaged or path.is_dir() or not same(existing.start.get("recipe", recipe), recipe)
    if damaged:
        files.set_aside(path)
    log = logs.Log(path, logs.BEGINNING)
    facts = {"variant": run.variant.name, "lr": run.lr, "seed": run.seed, "phase": run.phase, "steps": run.steps}
    log.write(logs.START, **facts, time=time.time(), recipe=recipe)
    if damaged:
        log.write(logs.NOTE, text=f"{path} was damaged or of another run; it was set aside, and the run began again")
    return log


def call_function(run: Run, settings: Settings, log: Log) -> float:
    """Call the user's function, and require that it took what the variant names."""
    function, build = import_function(settings.train or ""), Build(run.variant)
    more = {"lr": run.lr, "steps": run.steps, "seconds": run.seconds, "device": settings.device}
    given = {name: more[name] for name in takes(function) if more[name] is not None or name in required(function)}
    value = function(build, run.seed, log, **given)
    needed = {"norm", *(name for name in GIVEN if getattr(run.variant, name) != getattr(Variant, name))}
    if left := sorted(needed - build.used):
        how = {"norm": "build(width) or build(model)", "optimizer": "build.optimizer(model, lr)"}
        raise ValueError(
            f"train never called {' and '.join(how[name] for name in left)}, so that variants do not differ"
        )
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"train must return a number, the final measure, not {value!r}") from error


def write_end(log: logs.Log, own_log: Log, settings: Settings, value: float) -> dict[str, Any]:
    """Write the end of a run whose function has returned."""
    measure = measures.of(vars(settings))
    loss = value if measure.key == measures.LOSS else own_log.last
    final = {measures.LOSS: loss, measure.key: value}
    summary = {
        "final_loss": loss,
        "best_loss": min(own_log.best, value) if measure.key == measures.LOSS else own_log.best,
        "final": final,
        "seconds": round(own_log.seconds, 4),
        "cpu_seconds": round(time.process_time() - own_log.worked, 4),
        "parts": {TRAINING: round(own_log.seconds, 4)},
        "steps": own_log.step,
        "tokens_per_second": round(own_log.step / max(own_log.seconds, 1e-9), 1),
        "peak_memory": peak_memory(torch.device(settings.device)),
    }
    status = logs.DONE if math.isfinite(value) else logs.DIVERGED
    return log.end(status, **logs.nan_to_none(summary), unit=UNIT, error=None)


def write_crash(log: logs.Log, error: Exception) -> dict[str, Any]:
    """Write the end of a run that an error has ended."""
    return log.end(logs.CRASHED, error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())


def import_function(source: str) -> Callable[..., Any]:
    """Return the user's function, which must take ``build``, ``seed`` and ``log``."""
    function = data.resolve(source, "train")
    try:
        inspect.signature(function).bind(None, None, None, **dict.fromkeys(takes(function)))
    except (TypeError, ValueError) as error:
        usage = f"it is called as train(build, seed, log), and with any of {', '.join(EXTRA)} that it names"
        raise ValueError(f"train {source!r} does not fit: {error}; {usage}") from error
    return function


def takes(function: Callable[..., Any]) -> list[str]:
    """Return what else the function is to be given.

    >>> takes(lambda build, seed, log, steps: None)
    ['steps']
    """
    names = inspect.signature(function).parameters
    return [name for name in EXTRA if name in names]


def required(function: Callable[..., Any]) -> set[str]:
    """Return what of that has no default.

    >>> required(lambda build, seed, log, lr, steps=30: None)
    {'lr'}
    """
    parameters = inspect.signature(function).parameters
    return {name for name in takes(function) if parameters[name].default is inspect.Parameter.empty}


def check(plan: Plan) -> None:
    """Refuse variants that differ in what the function is not given, and lengths left open that it must be given."""
    function, name = import_function(plan.settings.train or ""), in_words(plan.settings.train or "")
    lengths = [length for length in ("steps", "seconds") if length in required(function)]
    for variant in plan.variants:
        _require_given(variant)
        for number in NUMBERS:
            if getattr(variant, number) is not None and number not in takes(function):
                raise ValueError(f"variant {variant.name!r} has its own {number}, and {name!r} takes none")
        given = "steps" if variant.steps or plan.settings.steps else "seconds" if plan.settings.seconds else ""
        if lengths and given not in lengths:
            raise ValueError(f"{name!r} takes {' and '.join(lengths)}: give {spell(lengths[0])}")


def _require_given(variant: Variant) -> None:
    """Refuse a variant that differs in what ``build`` does not give, or whose norm needs more than its width."""
    for slot in SLOTS:
        if slot not in GIVEN and getattr(variant, slot) != getattr(Variant, slot):
            names = " and ".join(GIVEN)
            raise ValueError(f"{spell(slot)}: a training loop of your own is given {names}, and no {slot}")
    if variant.start != Variant.start:
        raise ValueError(f"variant {variant.name!r}: start {variant.start!r}: {NO_TWIN}")
    if variant.norm != ORIGINAL:
        _require_any_fit(variant.norm)


def _require_any_fit(norm: str) -> None:
    try:
        maker(norm)
    except ValueError:
        maker(norm, channels_first=True)
