"""Running estimates: registered in one way, moved in one way, and right where a pass is recomputed or compiled.

A module that has some is a :class:`Running`. It keeps them under the names that its checkpoints have, and moves them in
training only; the rest deals with activation checkpointing, plain averages and state that a pass both reads and moves.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normkit.statistics import Moments, accurate
from normkit.threads import uncompiled

WALKS = ("named_modules", "modules", "<genexpr>", "<listcomp>")  # between a tool and the modules that it looks through
ESTIMATE = "does not estimate its averages anew; normkit.recalibrate(model, data) does"
JOINING = "convert_sync_batchnorm"
BY_CLASS = {  # functions that know batch norms by torch's class, and pass over others without a word
    "update_bn": ESTIMATE,
    "pl_module_contains_batch_norm": ESTIMATE,  # Lightning's StochasticWeightAveraging
    "get_bn_modules": ESTIMATE,
    JOINING: "does not join its statistics over processes; build it with sync=True, if it takes that",
}
UNKNOWN = {"channels_last": True, "unbiased": False}  # what a batch norm may be and torch's SyncBatchNorm may not
LEAVE = "the result computes something else; build it with sync=True instead"
BY_TYPE = ("get_bn_modules",)  # fvcore's, which takes torch's own few classes alone


Path = Callable[[Tensor, Tensor, Any], Tensor]  # of an estimate, a value and a rate, a number or a tensor


class Step(NamedTuple):
    """How running moments, in float32, move to those of a batch; ``bessel`` makes its variance the unbiased one."""

    mean: Tensor
    var: Tensor
    rate: float
    bessel: float

    def move(self, mean: Tensor, var: Tensor) -> None:
        """Move them, where no kernel has."""
        self.mean.lerp_(mean, self.rate)
        self.var.lerp_(var if self.bessel == 1 else var * self.bessel, self.rate)


class Running(nn.Module):
    """A module with running estimates; ``momentum`` is the share of the new batch, None weighs all batches alike.

    Checkpoints of torch's norms from before 0.4.1, which do not count batches, load.
    """

    momentum: Any  # a number, or None

    def keep(self, *, batches: bool = False, track: bool = True, **start: Tensor) -> None:
        """Register estimates by name with their initial values, and the number of batches with ``batches``.

        Without ``track`` the names are there, but None, as torch's norms have it.
        """
        if batches:
            start["num_batches_tracked"] = torch.tensor(0)
        for name, value in start.items():
            self.register_buffer(name, value if track else None)

    def keep_moments(self, size: int, track: bool = True, *, batches: bool = True) -> None:
        """Register mean and variance under the names that torch's BatchNorm keeps them by."""
        self.keep(batches=batches, track=track, running_mean=torch.zeros(size), running_var=torch.ones(size))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: dict, *rest: Any) -> None:
        key, batches = f"{prefix}num_batches_tracked", self._buffers.get("num_batches_tracked")
        if batches is not None and local_metadata.get("version") is None and key not in state_dict:
            state_dict[key] = torch.tensor(0) if batches.is_meta else batches
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """Walk through the modules, as torch does."""
        self._warn_passed_over()
        return super().named_modules(*args, **kwargs)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Walk through the children, as torch does."""
        self._warn_passed_over()
        return super().named_children()

    def _warn_passed_over(self) -> None:
        """Warn where a tool looks for batch norms that will not take this module for one."""
        if torch.compiler.is_compiling():
            return
        frame = sys._getframe(2)
        while frame.f_code.co_name in WALKS and frame.f_back is not None:
            frame = frame.f_back
        tool, card = frame.f_code.co_name, getattr(type(self), "card", None)
        if tool not in BY_CLASS or card is None or "N" not in card.over.axes:
            return
        known = isinstance(self, _BatchNorm) and tool not in BY_TYPE
        if not (known or (tool == JOINING and getattr(self, "sync", False))):
            warnings.warn(f"{tool} passes over {type(self).__name__}: it {BY_CLASS[tool]}", stacklevel=3)
        elif known and tool == JOINING:
            for name in (name for name, value in UNKNOWN.items() if getattr(self, name) == value):
                option = f"{name}={UNKNOWN[name]}"
                warnings.warn(f"{tool} drops {option} of {type(self).__name__}: {LEAVE}", stacklevel=3)

    def _plain_step(self, x: Tensor, count: int, unbiased: bool) -> Step | None:
        """Return how the moments move with a batch of ``count`` values a channel, where that is by a number alone.

        Not where :func:`averaging` or a lack of ``momentum`` sets the rate, a pass is recomputed, or the moments are
        not plain and in float32: :meth:`follow` knows of all this.
        """
        mean, var, batches = (self._buffers.get(f) for f in ("running_mean", "running_var", "num_batches_tracked"))
        if mean is None or var is None or batches is None or count < 1:
            return None
        if not isinstance(self.momentum, float) or is_averaging(mean) or recomputing():
            return None
        if any(type(b) is not Tensor or b.dtype is not torch.float32 or b.device != x.device for b in (mean, var)):
            return None
        if not (mean.is_contiguous() and var.is_contiguous()) or mean.is_inference() or x.dtype is torch.float64:
            return None
        return Step(mean, var, self.momentum, _bessel(count) if unbiased else 1.0)

    def move(self, count: Tensor | int, **values: Tensor) -> None:
        """Move estimates by name towards those of ``count`` values; a batch of none counts, but moves nothing."""
        batches = getattr(self, "num_batches_tracked", None)
        if batches is not None and not recomputing():
            batches.add_(1)
        kind = next(iter(values.values())).dtype
        moves = (count > 0).to(kind) if isinstance(count, Tensor) else float(count > 0)
        rate = moves / batches.to(kind) if self.momentum is None and batches is not None else moves * self.momentum
        for name, value in values.items():
            running = getattr(self, name)
            if running is not None:
                track(running, value, rate)

    def follow(self, moments: Moments, unbiased: bool = True, count: int | None = None) -> None:
        """Move the mean, and the variance by its unbiased estimate or the biased one, where they are kept.

        count: that of the moments where it is known without them, so that no GPU is asked to count.
        """
        if getattr(self, "running_mean", None) is None:
            return
        var = moments.var
        if unbiased:
            var = moments.unbiased() if count is None else var * _bessel(count)
        self.move(moments.count if count is None else count, running_mean=moments.mean, running_var=var)


def _bessel(count: int) -> float:
    """What makes a biased variance of so many values the unbiased one; a single value keeps its own."""
    return count / max(count - 1, 1)


def recomputing() -> bool:
    """Tell whether this forward pass runs inside a backward pass, that is, repeats an earlier one for checkpointing."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def is_averaging(running: Tensor) -> bool:
    """Tell whether an estimate becomes a plain average now, inside :func:`averaging`."""
    return _averages_of(running) is not None


def snapshot(running: Tensor) -> Tensor:
    """Copy a running estimate, in the accurate type, before it moves: for a training forward pass that reads it.

    torch.compile may recompute in the backward pass what the forward pass made of a buffer, from a buffer that has
    moved by then, and so give wrong gradients. The copy is an operator of its own, which it saves instead.
    """
    return accurate(_snapshot(running) if torch.compiler.is_compiling() else running.clone())


@torch.library.custom_op("normkit::snapshot", mutates_args=())
def _snapshot(running: Tensor) -> Tensor:
    return running.clone()


@_snapshot.register_fake
def _(running):
    return torch.empty_like(running)


def moving() -> AbstractContextManager[object]:
    """Move estimates without a gradient, by values that are detached.

    Under export they carry none by that alone: torch does not load a file with a graph of :func:`torch.no_grad` that
    only moves buffers.
    """
    return nullcontext() if torch.compiler.is_exporting() else torch.no_grad()


def track(running: Tensor, value: Tensor, rate: float | Tensor, path: Path | None = None) -> None:
    """Move a running estimate in place: ``running += rate * (value - running)``, but not when a pass is recomputed.

    Inside :func:`averaging` the rate is that of a plain average, but for a rate of 0. ``path`` is for estimates that
    move along another line: it returns the point at a rate of the way from the estimate to the value.
    """
    if not recomputing():
        with moving():
            _track(running, value.detach(), rate, path)


def _track(running: Tensor, value: Tensor, rate: float | Tensor, path: Path | None) -> None:
    if hasattr(value, "redistribute"):  # of a DTensor's samples
        whole = not hasattr(running, "placements")
        value = value.full_tensor() if whole else value.redistribute(placements=running.placements)  # type: ignore[attr-defined]
    old = accurate(running)
    averages = _averages_of(running)
    if averages is not None and (rate.any() if isinstance(rate, Tensor) else rate):
        own = running.to_local() if hasattr(running, "to_local") else running
        at = (own.data_ptr(), tuple(running.shape))
        count, old = averages.get(at, (0, old))
        averages[at] = count + 1, old
        rate = 1 / (count + 1)
    if path is not None:
        old.copy_(path(old, value, rate))
    else:
        old.lerp_(value.to(old.dtype), rate.to(old.dtype) if isinstance(rate, Tensor) else rate)
    if old is not running:
        running.copy_(old)


def move_finite(running: Tensor, value: Tensor) -> None:
    """Move in place to what a backward pass leaves; where its gradient overflowed, the old value stays.

    Infinity or NaN would never leave it again, and a loss scale overflows by design.
    """
    value = value.to(running.dtype)
    running.copy_(torch.where(value.isfinite(), value, running))


Averages = dict[tuple[int, tuple[int, ...]], tuple[int, Tensor]]
"""How often each estimate moved inside averaging(), and where it is by now, in the accurate type."""


@dataclass(eq=False)
class _Averaging:
    """One that is at work: its thread, the buffers that it is for in all threads, and their averages."""

    thread: int
    buffers: frozenset[Tensor]
    averages: Averages


_at_work: list[_Averaging] = []


def _averages_of(running: Tensor) -> Averages | None:
    """The averages that an estimate belongs to, or None outside of :func:`averaging`, which calls nothing compiled."""
    if torch.compiler.is_compiling() or not _at_work:
        return None
    here, whole = threading.get_ident(), running if running._base is None else running._base
    return next((one.averages for one in reversed([*_at_work]) if one.thread == here or whole in one.buffers), None)


@contextlib.contextmanager
def averaging(buffers: Iterable[Tensor] = ()) -> Iterator[None]:
    """Let every running estimate that :func:`track` moves become the plain average of its values.

    It is for all that this thread moves, and for these ``buffers`` in whatever thread: a model may call its parts in
    others, where still others may train their own.

    >>> running = torch.zeros(1)
    >>> with averaging():
    ...     for value in (1.0, 2.0, 6.0):
    ...         track(running, torch.tensor([value]), rate=0.1)
    >>> running
    tensor([3.])
    """
    own = _Averaging(threading.get_ident(), frozenset(buffers), {})
    _at_work.append(own)
    try:
        with uncompiled():
            yield
    finally:
        _at_work.remove(own)


CALLS = 16  # of a module between two backward passes, as of one discriminator for real and for made-up images


@contextlib.contextmanager
def once(module: nn.Module, x: Tensor | None = None) -> Iterator[None]:
    """Run a training forward pass that reads the running state it moves, so that it counts once.

    A pass that is recomputed for checkpointing sees the buffers as they were before the same call and leaves them as
    they are; a pass that fails leaves them untouched. The same call is that of the last 16 whose first and last sample
    were most like those of ``x``; of equals, and without ``x``, the last. What of a buffer enters the result must be a
    copy, since the buffer moves.
    """
    if torch.compiler.is_compiling():
        yield
        return
    buffers = dict(module.named_buffers())
    now = {name: buffer.clone() for name, buffer in buffers.items()}
    again, calls = recomputing(), module.__dict__.get("_calls", ())
    trace = None if x is None else _trace(x.detach())
    if again and calls:
        _restore(buffers, _same_call(calls, trace))
    try:
        yield
    except BaseException:
        _restore(buffers, now)
        raise
    if again:
        _restore(buffers, now)
    else:
        module.__dict__["_calls"] = (*(() if trace is None else calls[1 - CALLS :]), (trace, now))


def _trace(x: Tensor) -> Tensor:
    """Return two numbers of an input's ends that tell it from others: after a norm, the length alone would not."""
    x = x.to_local() if hasattr(x, "to_local") else x
    x = torch.cat([x[:1], x[-1:]])  # all of a large one would take a third of a step's time
    dtype = torch.promote_types(x.dtype, torch.float32)
    return torch.stack([torch.linalg.vector_norm(x, dtype=dtype), x.sum(dtype=dtype)])


def _same_call(calls: tuple[tuple[Any, dict[str, Tensor]], ...], trace: Tensor | None) -> dict[str, Tensor]:
    """Return the state before the call whose input had that trace; a GPU is asked where there are several."""
    if trace is None or len(calls) == 1:
        return calls[-1][1]
    off = torch.stack([(other.to(trace) - trace).abs().sum() for other, _ in reversed(calls)])
    return calls[-1 - int(off.nan_to_num(torch.inf).argmin())][1]


@torch.no_grad()
def _restore(buffers: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, buffer in buffers.items():
        buffer.copy_(values[name])
