"""Moments, their merging across shards and processes, and running estimates.

Every statistic that spans samples goes through this file, so that a mask, unequal shards on several processes, a recomputed
forward pass and half precision are dealt with once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Moments(NamedTuple):
    """Mean, biased variance and the number of values behind them, per channel."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def unbiased(self) -> Tensor:
        """Return the variance divided by (count - 1); a single value keeps its biased variance of 0."""
        return self.var * (self.count / (self.count - 1).clamp(min=1))


def accurate(x: Tensor) -> Tensor:
    """Return ``x`` in the type that statistics are taken in: float32 for half precision, else its own."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def sum_over(x: Tensor, axes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """Sum over ``axes``; where ``mask`` (broadcastable, boolean) is False a value does not count, not even NaN."""
    return (x if mask is None else torch.where(mask, x, 0)).sum(dim=tuple(axes))


def moments(
    x: Tensor, axes: Sequence[int], *, mask: Tensor | None = None, group: ProcessGroup | None = None, sync: bool = False
) -> Moments:
    """Mean and biased variance of ``x`` over ``axes``, in two passes, joined over all processes with ``sync``.

    ``mask`` is True where a value counts. With ``sync`` each process takes part with the values that it has, be they none;
    all get the same moments, and gradients flow back to every process' values.

    >>> moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), (0,)).var
    tensor([1., 4.])
    """
    x = accurate(x)
    axes = [a % x.dim() for a in axes]
    count = counted(x, axes, mask)
    total = sum_over(x, axes, mask)
    if sync:
        total, count = sum_over_processes(total, group), sum_over_processes(count, group)
    mean = total / count.clamp(min=1)
    square = sum_over((x - _keep(mean, axes)).square(), axes, mask)
    if sync:
        square = sum_over_processes(square, group)
    return Moments(mean, square / count.clamp(min=1), count)


def mean_over(
    x: Tensor, axes: Sequence[int], *, mask: Tensor | None = None, group: ProcessGroup | None = None, sync: bool = False
) -> Tensor:
    """Mean of ``x`` over ``axes``, with the mask and the processes of :func:`moments`."""
    x = accurate(x)
    axes = [a % x.dim() for a in axes]
    total, count = sum_over(x, axes, mask), counted(x, axes, mask)
    if sync:
        total, count = sum_over_processes(total, group), sum_over_processes(count, group)
    return total / count.clamp(min=1)


def counted(x: Tensor, axes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """How many values a sum over ``axes`` adds up, as a tensor of x's (accurate) type that broadcasts with that sum."""
    if mask is None:
        number = 1
        for axis in axes:
            number = number * x.shape[axis]
        return torch.full((), number, dtype=x.dtype, device=x.device)
    return torch.where(mask, 1, 0).expand(x.shape).sum(dim=tuple(axes)).to(x.dtype)


def _keep(value: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in sorted(axes):
        value = value.unsqueeze(axis)
    return value


def merge(mean: Tensor, var: Tensor, count: Tensor, *, unbiased: bool = False) -> tuple[Tensor, Tensor]:
    """Join the moments of K shards: ``mean`` and biased ``var`` of shape (K, C), ``count`` of shape (K,) or (K, C).

    Exact: the spread of the shards' means enters the variance. A shard with a count of 0 drops out. The result's variance is
    biased, or divided by (N - 1) with ``unbiased``.

    >>> merge(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [0.0]]), torch.tensor([1, 1]))
    (tensor([1.]), tensor([1.]))
    """
    share = count.to(mean.dtype).reshape(count.shape + (1,) * (mean.dim() - count.dim()))
    total = share.sum(0)
    joined = (share * mean).sum(0) / total
    square = (share * (var + (mean - joined).square())).sum(0)
    return joined, square / (total - 1 if unbiased else total)


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _all_reduce(x, group)

    @staticmethod
    def backward(ctx, grad):
        return sum_over_processes(grad, ctx.group), None


def _all_reduce(x: Tensor, group: ProcessGroup | None) -> Tensor:
    from torch.distributed import _functional_collectives as collectives
    from torch.distributed import group as groups

    return collectives.all_reduce(x.contiguous(), "sum", group or groups.WORLD)


def sum_over_processes(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Add up ``x`` over the processes of ``group`` (default: all); the gradient is added up likewise.

    Without torch.distributed running, or alone in the group, it is the identity, so that a model built for many processes
    runs unchanged on one.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return x
    if torch.distributed.get_world_size(group) == 1:
        return x
    return _SumOverProcesses.apply(x, group)


def recomputing() -> bool:
    """Tell whether this forward pass runs inside a backward pass, that is, repeats an earlier one for checkpointing."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


@torch.no_grad()
def track(running: Tensor, value: Tensor, rate: float | Tensor) -> None:
    """Move a running estimate in place: ``running += rate * (value - running)``, but not when a pass is recomputed."""
    if not recomputing():
        running.copy_(torch.lerp(running, value.detach().to(running.dtype), rate))


@contextlib.contextmanager
def once(module: nn.Module) -> Iterator[None]:
    """Run a training forward pass that reads the running state it moves, so that it counts once.

    A pass that is recomputed for checkpointing sees the buffers as they were before the module's last call and leaves them
    as they are after it; a pass that fails leaves them untouched. Holds for one call of the module between two backward
    passes, which is what a checkpointed layer does.
    """
    if torch.compiler.is_compiling():
        yield
        return
    buffers = dict(module.named_buffers())
    now = {name: buffer.clone() for name, buffer in buffers.items()}
    again = recomputing()
    if again:
        _restore(buffers, module.__dict__.get("_before_last_call", now))
    try:
        yield
    except BaseException:
        _restore(buffers, now)
        raise
    if again:
        _restore(buffers, now)
    else:
        module.__dict__["_before_last_call"] = now


@torch.no_grad()
def _restore(buffers: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, buffer in buffers.items():
        buffer.copy_(values[name])
