"""Moments, and their merging across shards and processes.

Every statistic that spans samples goes through this file, so that a mask, unequal shards on several processes and half
precision are dealt with once. What runs from batch to batch is :mod:`normkit.running`'s.
"""

from __future__ import annotations

import collections
import datetime
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from normkit import check

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    Groups = ProcessGroup | tuple[ProcessGroup, ...] | None


class Moments(NamedTuple):
    """Mean, biased variance and the number of values behind them, per channel."""

    mean: Tensor
    var: Tensor
    count: Tensor  # type: ignore[assignment]

    def unbiased(self) -> Tensor:
        """Return the variance divided by (count - 1); a single value keeps its biased variance of 0."""
        return self.var * (self.count / (self.count - 1).clamp(min=1))


def accurate(x: Tensor) -> Tensor:
    """Return ``x`` in the type that statistics are taken in: float32 for half precision, else its own."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def reals(owner: object, name: str, x: Tensor, sizes: Sequence[int | None], like: Tensor | None = None) -> Tensor:
    """Require real numbers of these ``sizes``, and return them in the accurate type."""
    check.floating(owner, x, name)
    check.values(owner, name, x, sizes, x if like is None else like)
    return accurate(x)


def widest(x: Tensor) -> Tensor:
    """Return ``x`` in float64 where its device has it: for sums of many numbers, and squares of what runs."""
    return x if x.device.type == "mps" else x.double()


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off on the device of ``x``; that of shapes alone has none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def root(square: Tensor) -> Tensor:
    """Square root with a gradient of 0 at 0, where that of ``torch.sqrt`` is infinite: a deviation of values all equal.

    >>> root(torch.tensor([0.0, 4.0]))
    tensor([0., 2.])
    """
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1).sqrt(), square.detach() * 0)


def sum_over(x: Tensor, axes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """Sum over ``axes``; where ``mask`` (broadcastable, boolean) is False a value does not count, not even NaN."""
    x = x if mask is None else torch.where(mask, x, 0)
    return x.sum(dim=tuple(axes)) if axes else x


def moments(
    x: Tensor,
    axes: Sequence[int],
    *,
    mask: Tensor | None = None,
    within: Tensor | None = None,
    group: Groups = None,
    sync: bool = False,
) -> Moments:
    """Mean and biased variance of ``x`` over ``axes``, in two passes, joined over all processes with ``sync``.

    The second pass also mends the first one's rounding, so that both are exact to the last digits at any offset.

    ``mask`` is True where a value counts. Where values are means themselves, ``within`` has the variances of what they
    are the means of, whose mean is added to theirs. With ``sync`` each process takes part with the values that it has,
    be they none; all get the same moments, and gradients flow back to every process' values. Of no values at all they
    are 0. The processes send one sum, and one more in the backward pass, in float64; at an offset of 1e6 deviations
    that costs 1e-4 of the variance.

    >>> moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), (0,)).var
    tensor([1., 4.])
    """
    return joined_moments(*_own_moments(accurate(x), [a % x.dim() for a in axes], mask, within), group, sync=sync)


def moments_of_parts(
    x: Tensor, axes: Sequence[int], masks: Sequence[Tensor], *, group: Groups = None, sync: bool = False
) -> list[Moments]:
    """The :func:`moments` of the values that each mask leaves, in one message."""
    own = [_own_moments(accurate(x), [a % x.dim() for a in axes], mask) for mask in masks]
    mean, rest, square, count = (torch.stack(each) for each in zip(*own, strict=True))
    joined = joined_moments(mean, rest, square, count, group, sync=sync)
    return [Moments(*each) for each in zip(*joined, strict=True)]


def _own_moments(
    x: Tensor, axes: Sequence[int], mask: Tensor | None, within: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The mean of a process' values, what rounding took from it, their mean square about it, and their number."""
    mean, count = mean_and_count(x, axes, mask=mask)
    centered = x - keep(mean, axes)
    # masked before the square: 0 times the derivative of a NaN's square would still be NaN
    centered = centered if mask is None else torch.where(mask, centered, 0)
    square = sum_over(centered.square(), axes) / count.clamp(min=1)
    square = square if within is None else square + sum_over(within, axes) / count.clamp(min=1)
    return mean, sum_over(centered.detach(), axes) / count.clamp(min=1), square, count


def joined_moments(
    mean: Tensor, rest: Tensor, square: Tensor, count: Tensor, group: Groups = None, *, sync: bool = False
) -> Moments:
    """Moments from means, what rounding took from them, mean squares about them and counts, of all with ``sync``."""
    if not sync or processes(group) == 1:
        most = torch.finfo(mean.dtype).max  # where squares overflow the variance is infinite, not infinity less itself
        return Moments(mean + rest, (square - rest.square().clamp(max=most)).clamp(min=0), count)
    exact, own = mean.double() + rest, count.double()
    about_zero = square.double() - rest.double().square() + exact.square()
    total, squares, number = sum_together([own * exact, own * about_zero, own], group)
    number = number.detach()
    joined, second = total / number.clamp(min=1), squares / number.clamp(min=1)
    var = (second - joined.square().clamp(max=torch.finfo(joined.dtype).max)).clamp(min=0)
    return Moments(joined.to(mean.dtype), var.to(mean.dtype), number.to(mean.dtype))


def join_products(
    mean: Tensor, centered: Tensor, product: Tensor, count: Tensor, group: Groups
) -> tuple[Tensor, Tensor, Tensor]:
    """Join means, products of centered values (groups, width, values) and counts of all processes, in one message."""
    exact = mean.double().view(product.shape[:-1])
    rest = centered.detach().sum(-1).double() / count.clamp(min=1)
    exact, number = exact + rest, count.double()
    about_zero = product.double() + number * (_outer(exact) - _outer(rest))
    total, products, number = sum_together([number * exact, about_zero, number], group)
    number = number.detach()
    joined = total / number.clamp(min=1)
    about_mean = products - number * _outer(joined)
    return joined.flatten().to(mean.dtype), about_mean.to(mean.dtype), number.to(mean.dtype)


def _outer(x: Tensor) -> Tensor:
    return x.unsqueeze(-1) * x.unsqueeze(-2)


class Deviations(NamedTuple):
    """Values less their mean, that mean, their mean size and mean square about it, and the number of values."""

    centered: Tensor
    mean: Tensor
    size: Tensor
    square: Tensor
    count: Tensor  # type: ignore[assignment]


def deviations(x: Tensor, axes: Sequence[int], *, group: Groups = None) -> Deviations:
    """Deviations from the mean over ``axes`` of all processes' values.

    Sizes about a mean need it first, so the processes send two sums. The first one has no gradient: the second mends
    the mean, and has the signs, which say how sizes follow it. So the backward pass sends one.
    """
    x, axes = accurate(x), [a % x.dim() for a in axes]
    mean, count = mean_and_count(x.detach(), axes, group=group, sync=True)
    near = x - keep(mean, axes)
    totals = [sum_over(v, axes) for v in (near, near.abs(), near.square(), near.detach().sign())]
    rest, size, square, signs = (total / count.clamp(min=1) for total in sum_together(totals, group))
    return Deviations(near - keep(rest, axes), mean + rest, size - rest * signs, square - rest.square(), count)


def mean_over(
    x: Tensor, axes: Sequence[int], *, mask: Tensor | None = None, group: Groups = None, sync: bool = False
) -> Tensor:
    """Mean of ``x`` over ``axes``, with the mask and the processes of :func:`moments`."""
    return mean_and_count(x, axes, mask=mask, group=group, sync=sync)[0]


def mean_and_count(
    x: Tensor, axes: Sequence[int], *, mask: Tensor | None = None, group: Groups = None, sync: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean of ``x`` over ``axes``, and of how many values it is, in one message."""
    x, axes = accurate(x), [a % x.dim() for a in axes]
    total, count = sum_over(x, axes, mask), sample_count(x, axes, mask)
    if sync:
        total, count = sum_together([total, count], group)
    count = count.detach()
    return total / count.clamp(min=1), count


def sample_count(x: Tensor, axes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """How many values a sum over ``axes`` adds up, as a tensor of the type of ``x`` that broadcasts with it."""
    if mask is None:
        number = 1
        for axis in axes:
            number = number * x.shape[axis]
        return torch.full((), number, dtype=x.dtype, device=x.device)
    return torch.where(mask, 1, 0).expand(x.shape).sum(dim=tuple(axes)).to(x.dtype)


def keep(value: Tensor, axes: Sequence[int]) -> Tensor:
    """Give what was reduced over axes these axes again, of size 1."""
    for axis in sorted(axes):
        value = value.unsqueeze(axis)
    return value


def merge(mean: Tensor, var: Tensor, count: Tensor, *, unbiased: bool = False) -> tuple[Tensor, Tensor]:
    """Join the moments of K shards: ``mean`` and biased ``var`` of shape (K, C), ``count`` of shape (K,) or (K, C).

    Exact: the spread of the shards' means enters the variance. A shard with a count of 0 drops out, whatever its
    moments are. The result's variance is biased, or divided by (N - 1) with ``unbiased``, N the sum of the counts; one
    value keeps its biased variance of 0, and of no values both are 0. Half precision gives float32.

    >>> merge(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [0.0]]), torch.tensor([1, 1]))
    (tensor([1.]), tensor([1.]))
    """
    check.shape("merge", "var", var, mean.shape)
    check.shape("merge", "count", count, mean.shape[: max(count.dim(), 1)])
    mean, var = accurate(mean), accurate(var)
    number = count.to(mean.dtype).reshape(count.shape + (1,) * (mean.dim() - count.dim()))
    mean, var = (torch.where(number > 0, value, 0) for value in (mean, var))
    total = number.sum(0)
    joined = (number * mean).sum(0) / torch.where(total > 0, total, 1)
    square = (number * (var + (mean - joined).square())).sum(0)
    divisor = total - 1 if unbiased else total
    return joined, square / torch.where(divisor > 0, divisor, 1)


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _all_reduce(x, group)

    @staticmethod
    def backward(ctx, grad):
        return sum_over_processes(grad, ctx.group), None


class _Sizes:
    """The sizes of messages that a group's processes have compared: gloo aborts where they differ, and NCCL hangs.

    A size is compared when it is sent first, by the group's store and not by a message. Processes that come late are
    not waited for, and after some sizes no more are compared.
    """

    most, patience = 64, datetime.timedelta(seconds=5)

    def __init__(self) -> None:
        self.calls, self.seen = 0, set[int]()

    def compare(self, size: int, group: ProcessGroup) -> None:
        self.calls += 1
        if size not in self.seen and len(self.seen) < self.most:
            self.seen.add(size)
            self._compare_now(size, group)

    def _compare_now(self, size: int, group: ProcessGroup) -> None:
        from torch.distributed import distributed_c10d, get_process_group_ranks, get_rank

        store, ranks = distributed_c10d._get_default_store(), get_process_group_ranks(group)
        keys = [f"normkit/{group.group_name}/{self.calls}/{rank}" for rank in ranks]
        try:
            store.set(keys[ranks.index(get_rank())], str(size))
            store.wait(keys, self.patience)
            sizes = [int(store.get(key)) for key in keys]
        except (RuntimeError, ValueError):  # of processes that are late or gone, or a store that only pretends
            self.most = 0
            return
        if len(set(sizes)) > 1:
            each = ", ".join(f"process {rank} has {size}" for rank, size in zip(ranks, sizes, strict=True))
            raise ValueError(
                f"a message must be of one size on all processes of its group, but {each}; build norms with equal "
                "features and models with equal parameters on all, and cut inputs alike"
            )


_sizes: dict[str, _Sizes] = collections.defaultdict(_Sizes)


def require_equal_sizes(size: int, group: Any) -> None:
    """Require that the processes of a group are about to send messages of one size, where it can be known."""
    name = getattr(group, "group_name", None)
    if name is not None and not torch.compiler.is_compiling():
        _sizes[name].compare(size, group)


def _all_reduce(x: Tensor, group: ProcessGroup | None) -> Tensor:
    from torch.distributed import _functional_collectives as collectives
    from torch.distributed import group as groups

    everyone = group or groups.WORLD
    require_equal_sizes(x.numel(), everyone)
    return collectives.wait_tensor(collectives.all_reduce(x.contiguous(), "sum", everyone))  # type: ignore[arg-type]


def sum_over_processes(x: Tensor, group: Groups = None) -> Tensor:
    """Add up ``x`` over the processes of ``group`` (default: all); the gradient is added up likewise.

    Several groups, such as those of some axes of a mesh, follow one another. Without torch.distributed running, or
    alone in the group, it is the identity, so that a model built for many processes runs unchanged on one.
    """
    for each in group if isinstance(group, tuple) else (group,):
        x = x if processes(each) == 1 else _SumOverProcesses.apply(x, each)
    return x


def processes(group: Groups = None) -> int:
    """How many processes ``group`` (default: all) has; 1 where torch.distributed does not run."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    if isinstance(group, tuple):
        return math.prod([torch.distributed.get_world_size(each) for each in group])
    return torch.distributed.get_world_size(group)


def are_own(sync: bool, group: Groups = None) -> bool:
    """Whether statistics are those of this process alone: not joined with others', or there are no others."""
    return not sync or processes(group) == 1


def gather_over_processes(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Stack the processes' ``x``, of one shape on all, in the order of their ranks: (processes, ...)."""
    if processes(group) == 1:
        return x.unsqueeze(0)
    stacked = x.new_zeros(processes(group), *x.shape)
    stacked[torch.distributed.get_rank(group)] = x
    return sum_over_processes(stacked, group)


def place(x: Tensor, group: ProcessGroup | None = None) -> tuple[int, int]:
    """Where this process' samples start in the joined batch, which is in the order of the ranks, and its size."""
    if processes(group) == 1:
        return 0, x.shape[0]
    counts = gather_over_processes(torch.tensor(x.shape[0], device=x.device), group).tolist()
    return sum(counts[: torch.distributed.get_rank(group)]), sum(counts)


def sum_together(tensors: Sequence[Tensor], group: Groups = None) -> list[Tensor]:
    """Add up tensors over the processes, all in one message."""
    joined = sum_over_processes(torch.cat([x.flatten() for x in tensors]), group)
    return [part.view(x.shape) for part, x in zip(joined.split([x.numel() for x in tensors]), tensors, strict=True)]
