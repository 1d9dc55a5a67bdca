"""Norms of DTensors: each process works on its own part, and what is sent is one sum of moments, where one is needed.

Where whole vectors lie on a process (samples, positions or heads are sharded) its part is an ordinary tensor, which the
kernel takes; nothing is sent. Where the entries of a vector are sharded, each process sums up its own, one all-reduce
adds these moments up, and the rest is done apart; the backward pass sends one sum as well. torch.compile traces all of
it. The result has the placements of the input. What is Partial is reduced first, since a norm is not linear.

The gradient of a replicated gain is Partial along the axes of the mesh on which the rows or the entries are sharded:
each process has its rows' or its entries' share in it, as with torch's own norms.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from normkit import check
from normkit.statistics import (
    accurate,
    deviations,
    gather_over_processes,
    keep,
    processes,
    sum_over_processes,
    sum_together,
)

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_JOINING = ("sync", "process_group")

__all__ = ["Parts", "by_parts", "by_samples", "is_sharded", "parts", "whole"]


def is_sharded(x: Tensor) -> bool:
    """Whether a tensor is a DTensor, whose norm is computed on its parts."""
    known = sys.modules.get("torch.distributed.tensor")  # nobody has a DTensor without it
    return known is not None and isinstance(x, known.DTensor)


def whole(x: Tensor) -> Tensor:
    """A tensor with all of its parts."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


class Parts(NamedTuple):
    """A DTensor as it is cut: this process' part, where it begins in the whole, and which axes lie across processes."""

    whole: DTensor
    local: Tensor
    begin: tuple[int, ...]
    axes: tuple[int | None, ...]  # for each axis of the mesh the axis of the tensor that it shards, or None

    def along(self, axes: Sequence[int]) -> list[int]:
        """The axes of the mesh that shard one of these axes of the tensor."""
        return [at for at, axis in enumerate(self.axes) if axis in axes]

    def groups(self, axes: Sequence[int]) -> tuple[Any, ...]:
        """The groups of processes among which these axes of the tensor are shared out."""
        return _groups(self.whole.device_mesh, self.along(axes))

    def size(self, axes: Sequence[int]) -> int:
        """How many values of the whole lie along axes."""
        return math.prod([self.whole.shape[axis] for axis in axes])

    def total(self, axes: Sequence[int], *own: Tensor) -> list[Tensor]:
        """Add each process' sums over axes up, in float64, in one message for each axis of the mesh that cuts them."""
        return sum_together([x.double() for x in own], self.groups(axes))

    def moments(self, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Mean and biased variance over axes of all processes' values, kept as 1, in float64."""
        (both,) = self.total(axes, own_sums(x, axes))
        mean, square = (both / max(self.size(axes), 1)).unbind()
        return mean, (square - mean.square()).clamp(min=0)

    def deviations(self, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values less the mean over axes of all processes' values, that mean, their mean size and square, kept as 1."""
        centered, *means, _ = deviations(x, axes, group=self.groups(axes))
        mean, size, square = (keep(value, axes) for value in means)
        return centered, mean, size, square

    def product(self, matrix: Tensor, x: Tensor, axis: int = 1) -> Tensor:
        """A matrix times the vectors along an axis, of which this process has a part in ``x``."""
        own = matrix.narrow(1, self.begin[axis], x.shape[axis])
        return sum_over_processes(torch.tensordot(own, x, ([1], [axis])).movedim(0, axis), self.groups((axis,)))

    def own(self, x: Tensor, axis: int = 1) -> Tensor:
        """What this process has along an axis of the whole."""
        return x.narrow(axis, self.begin[axis], self.local.shape[axis])

    def rows(self, matrix: Tensor, axis: int = 1) -> Tensor:
        """The rows of a matrix that make what this process has along an axis of the whole."""
        return matrix.narrow(0, self.begin[axis], self.local.shape[axis])

    def stacked(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """What each process has of its part along axes, (processes, ...): the sum of tensors that are 0 elsewhere."""
        x = x.unsqueeze(0)
        for group in self.groups(axes):
            x = gather_over_processes(x, group).flatten(0, 1)
        return x

    def with_neighbours(self, x: Tensor, at: int, axis: int, before: int, after: int) -> tuple[Tensor, tuple[int, int]]:
        """Lay what other processes have before and after a part along an axis of the whole beside it, at axis ``at``.

        With it goes how many entries are missing there, beyond the ends of the whole.
        """
        size, along = self.whole.shape[axis], self.along((axis,))
        begin, end = self.begin[axis], self.begin[axis] + self.local.shape[axis]
        if along and before + after:
            line = _line(self.whole.device_mesh, along, size)
            self._check_all_have_some(axis, line)
            x = _exchange(x, at, line, size, (before, after))
        first, last = _reach((begin, end), size, (before, after)) if along else (begin, end)
        return x, (before - (begin - first), after - (last - end))

    def _check_all_have_some(self, axis: int, line: _Line) -> None:
        """Refuse what hangs: torch.compile drops the exchange in the backward pass of a process that has nothing."""
        mesh, size = self.whole.device_mesh, self.whole.shape[axis]
        among = math.prod([mesh.size(at) for at in self.along((axis,))])
        have = sum([end > begin for begin, end in line.owned])
        if torch.compiler.is_compiling() and have < among:
            raise NotImplementedError(
                f"axis {axis} of x has {size} entries, which leaves some of {among} processes none; torch.compile "
                "cannot exchange neighbours with those"
            )

    def within(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Put all of a module's parameters in the places of its DTensors."""
        return _on_part(module, self, ())

    def kept(self, value: Tensor) -> Tensor:
        """All of a buffer."""
        return whole(value)

    def of_axis(self, axis: int, local: Tensor) -> DTensor:
        """A vector of one number for each entry of an axis, of which this process has those of its part."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        mesh = self.whole.device_mesh
        places = [Shard(0) if own == axis else Replicate() for own in self.axes]
        return DTensor.from_local(
            local, mesh, places, run_check=False, shape=self.whole.shape[axis : axis + 1], stride=(1,)
        )

    def joined(self, local: Tensor) -> DTensor:
        """The result of which this process has a part, placed as the input is."""
        from torch.distributed.tensor import DTensor

        of = self.whole
        stride = of.stride() if local.stride() == self.local.stride() else torch.empty(of.shape, device="meta").stride()
        return DTensor.from_local(local, of.device_mesh, of.placements, run_check=False, shape=of.shape, stride=stride)

    def alike(self, owner: object, name: str, value: Tensor) -> Tensor:
        """This process' part of an input of the same shape, which is placed as the first one is."""
        value = self._on_mesh(owner, name, value)
        same = value.placements == self.whole.placements
        return (value if same else value.redistribute(placements=self.whole.placements)).to_local()

    def beside(self, value: Tensor) -> Tensor:
        """The entries of a tensor that broadcasts with the whole's first axes from the right, but for the last."""
        from torch.distributed.tensor import DTensor

        value = value.full_tensor() if isinstance(value, DTensor) else value
        for at in range(2, value.ndim + 1):
            size, whole = self.local.shape[-at], self.whole.shape[-at]
            if value.shape[-at] == whole != size:
                value = value.narrow(-at, self.begin[-at], size)
        return value

    def shared(self, owner: object, name: str, value: Tensor) -> Tensor:
        """All of a parameter, whose gradient each process has a share of."""
        return self.parameter(owner, name, value, self.whole.ndim)

    @overload
    def parameter(self, owner: object, name: str, value: Tensor, first: int) -> Tensor: ...

    @overload
    def parameter(self, owner: object, name: str, value: Tensor | None, first: int) -> Tensor | None: ...

    def parameter(self, owner: object, name: str, value: Tensor | None, first: int) -> Tensor | None:
        """What of a gain this part needs, whose axes are those of the whole from ``first`` on, or a single number."""
        from torch.distributed.tensor import Partial

        if value is None:
            return None
        value = self._on_mesh(owner, name, value)
        single = value.numel() == 1 and value.shape != self.whole.shape[first : first + value.ndim]
        kept = self._places(value, range(first, first if single else first + value.ndim))
        if tuple(kept) != value.placements:
            value = value.redistribute(placements=kept)
        shares = [
            Partial() if axis is not None and place.is_replicate() else place
            for axis, place in zip(self.axes, kept, strict=True)
        ]
        own = value.to_local(grad_placements=shares)
        if single:
            return own
        for axis, size in enumerate(self.local.shape[first : first + value.ndim]):
            if own.shape[axis] != size:  # replicated, where the entries of x are sharded
                own = own.narrow(axis, self.begin[first + axis], size)
        return own

    def with_gradients_of_all(self, owner: object, **values: Tensor) -> list[Tensor]:
        """All of some parameters or what is made of them, whose gradients are added up in one message."""
        groups = _groups(self.whole.device_mesh, [at for at, axis in enumerate(self.axes) if axis is not None])
        whole = [self._on_mesh(owner, name, value).full_tensor() for name, value in values.items()]
        return list(_SumBack.apply(groups, *whole))

    def _places(self, value: DTensor, axes: range) -> list[Any]:
        """Where a parameter lies whose axes are those of the whole: cut as the whole is, or everywhere."""
        from torch.distributed.tensor import Replicate, Shard

        return [
            place if axis in axes and place == Shard(axis - axes.start) else Replicate()  # type: ignore[operator]
            for axis, place in zip(self.axes, value.placements, strict=True)
        ]

    def _on_mesh(self, owner: object, name: str, value: Tensor) -> DTensor:
        from torch.distributed.tensor import DTensor

        mesh = self.whole.device_mesh
        if not isinstance(value, DTensor):
            raise TypeError(
                f"{check.whose(owner)}: x is a DTensor, but {name} is a plain tensor; distribute it too, a module by "
                "torch.distributed.tensor.distribute_module or a plan of parallelize_module"
            )
        if value.device_mesh != mesh:
            raise ValueError(
                f"{check.whose(owner)}: {name} must be on the mesh of x, {_words(mesh)}, not on "
                f"{_words(value.device_mesh)}"
            )
        return value


class _SumBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, groups, *values):
        ctx.groups = groups
        return tuple([value.view_as(value) for value in values])

    @staticmethod
    def backward(ctx, *gradients):
        return None, *sum_together(gradients, ctx.groups)


def parts(owner: object, x: DTensor) -> Parts | None:
    """Cut a DTensor; None where it is placed otherwise than by whole shards, copies and sums."""
    from torch.distributed.tensor import Replicate, Shard

    if not all(type(place) is Shard or place.is_replicate() or place.is_partial() for place in x.placements):
        return None
    copied = [Replicate() if place.is_partial() else place for place in x.placements]
    x = x if tuple(copied) == x.placements else x.redistribute(placements=copied)
    axes = tuple([_cut_axis(place, x.ndim) for place in copied])
    return Parts(x, x.to_local(), tuple([_begin(x, axes, axis) for axis in range(x.ndim)]), axes)


def _begin(x: DTensor, axes: tuple[int | None, ...], axis: int) -> int:
    """Where this process' part begins, a number that torch.compile knows, which torch's own function does not give."""
    mesh = x.device_mesh
    return _share(
        x.shape[axis], [(mesh.size(at), mesh.get_local_rank(at)) for at in range(mesh.ndim) if axes[at] == axis]
    )[0]


def by_samples(forward: Callable[..., Any], samples: int) -> Callable[..., Any]:
    """Let a norm with a statistic of samples work on this process' samples of a DTensor, joined as by ``sync``.

    So nothing is sent but what ``sync`` sends for plain tensors. What is cut along other axes, lies on several axes of
    the mesh, comes with a second input, or is joined with processes beyond the mesh, goes to ``forward`` as it is.
    """

    @functools.wraps(forward)
    def run(self: nn.Module, x: Tensor, *others: Any, **named: Any) -> Any:
        if type(x) is Tensor or others or named or not is_sharded(x):
            return forward(self, x, *others, **named)
        part = parts(self, x)  # type: ignore[arg-type]
        if part is None or not _whole_but_for(part, samples % x.ndim, self):
            return forward(self, x)
        with _on_part(self, part, part.groups((samples % x.ndim,))):
            y = forward(self, part.local)
        return part.joined(y)

    return run


def by_parts_or_refused(forward: Callable[..., Any], samples: int | None) -> Callable[..., Any]:
    """Let a norm that knows nothing of DTensors work on this process' samples of one, or say what it cannot take.

    What torch's DTensor can do is left to it. ``samples`` is None where samples are not apart from each other.
    """

    @functools.wraps(forward)
    def run(self: nn.Module, *inputs: Any, **named: Any) -> Any:
        x = inputs[0] if inputs else None
        if type(x) is Tensor or x is None or not is_sharded(x):
            return forward(self, *inputs, **named)
        try:
            return forward(self, *inputs, **named)
        except RuntimeError as error:
            if str(error).startswith(check.whose(self)):
                raise
            reason = error
        part = parts(self, x)
        alone = samples is not None and len(inputs) == 1 and not named
        if part is None or not alone or not _whole_but_for(part, samples % x.ndim, self):
            raise _refusal(self, x, samples is not None, [*inputs[1:], *named.values()]) from reason
        with _on_part(self, part, ()):
            return part.joined(forward(self, part.local))

    return run


def _refusal(owner: nn.Module, x: DTensor, samples: bool, others: Sequence[Any]) -> NotImplementedError:
    plain = any(type(other) is Tensor for other in others)
    beside = " beside plain tensors; distribute those too, or give" if plain else "; give"
    whole = "x.full_tensor(), and plain parameters and inputs beside it"
    cut = " or a DTensor whose samples alone are cut," if samples and not others else ""
    return NotImplementedError(
        f"{check.whose(owner)}: x is a DTensor placed as {tuple(x.placements)} on the mesh {_words(x.device_mesh)}"
        f"{beside} what it takes:{cut} {whole}"
    )


def _cut_axis(place: Any, ndim: int) -> int | None:
    """The axis that a placement shards; compared rather than read, since torch.compile takes what is read to vary."""
    return next((axis for axis in range(ndim) if place.is_shard() and place.dim % ndim == axis), None)


def part_of(owner: object, x: Tensor) -> Parts | None:
    """Cut a DTensor; None for plain tensors, and for placements that :func:`parts` does not take."""
    return parts(owner, x) if type(x) is not Tensor and is_sharded(x) else None  # type: ignore[arg-type]


def _reach(own: tuple[int, int], size: int, beyond: tuple[int, int]) -> tuple[int, int]:
    """From where to where a part reaches with its neighbours; one of nothing has none."""
    begin, end = own
    return own if begin >= end else (max(0, begin - beyond[0]), min(size, end + beyond[1]))


class _Line(NamedTuple):
    """Processes among which an axis is shared out: their group, from where to where each has it, and which is this."""

    group: Any
    owned: list[tuple[int, int]]
    me: int


def _line(mesh: Any, along: Sequence[int], size: int) -> _Line:
    """The processes along some axes of a mesh; of several axes all of the mesh, where those elsewhere have nothing."""
    if len(along) == 1:
        (at,) = along
        ranks = range(mesh.size(at))
        return _Line(mesh.get_group(at), [_share(size, [(len(ranks), r)]) for r in ranks], mesh.get_local_rank(at))
    sizes = [mesh.size(at) for at in range(mesh.ndim)]
    own = tuple([mesh.get_local_rank(at) for at in range(mesh.ndim)])
    places = list(itertools.product(*[range(n) for n in sizes]))
    beside = [all(place[at] == own[at] or at in along for at in range(mesh.ndim)) for place in places]
    owned = [
        _share(size, [(sizes[at], place[at]) for at in along]) if near else (0, 0)
        for place, near in zip(places, beside, strict=True)
    ]
    return _Line(everyone(mesh), owned, places.index(own))


def _share(size: int, cuts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """From where to where a part reaches that is the r-th of n, again and again: all but the last are of one size."""
    begin, end = 0, size
    for among, rank in cuts:
        length = -(-(end - begin) // among)
        begin, end = min(end, begin + rank * length), min(end, begin + (rank + 1) * length)
    return begin, end


def _exchange(x: Tensor, at: int, line: _Line, size: int, beyond: tuple[int, int]) -> Tensor:
    """A part with what its neighbours on other processes have of its reach."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    group, owned, me = line
    rows, begin = x.movedim(at, 0), owned[me][0]
    sent = [_overlap(owned[me], _reach(own, size, beyond)) for own in owned]
    sent[me] = (begin, begin)
    taken = [_overlap(own, _reach(owned[me], size, beyond)) for own in owned]
    taken[me] = (0, 0)
    message = torch.cat([rows.narrow(0, first - begin, last - first) for first, last in sent])
    lengths, given = ([last - first for first, last in each] for each in (taken, sent))
    others = all_to_all_single_autograd(message, lengths, given, group)
    before = sum(lengths[:me])
    return torch.cat([others[:before], rows, others[before:]]).movedim(0, at)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    first, last = max(a[0], b[0]), min(a[1], b[1])
    return (first, last) if first < last else (a[0], a[0])


def by_parts(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a norm of single samples work on this process' part of a DTensor.

    Where no axis is cut that the norm's card has a statistic over, nor the channels, it is called with the part, and
    nothing is sent. Else ``over_parts(part)`` of the module gives its result for the part, joining what a statistic
    needs; where there is none, or it gives None, ``forward`` sees the DTensor.
    """

    @functools.wraps(forward)
    def run(self: Any, x: Tensor) -> Tensor:
        if type(x) is Tensor or not is_sharded(x):
            return forward(self, x)
        part = parts(self, x)  # type: ignore[arg-type]
        if part is None:
            return forward(self, x)
        y = None
        if not torch.compiler.is_compiling() and {*part.axes} - {None} <= _free(self.card, x.ndim):
            with _on_part(self, part, ()):
                y = forward(self, part.local)
        elif hasattr(self, "over_parts"):
            y = self.over_parts(part)
        return forward(self, x) if y is None else part.joined(y)

    return run


def _free(card: Any, ndim: int) -> set[int]:
    """The axes along which a norm does the same everywhere."""
    names, over = card.shape.axes, card.over.axes
    if names[0] == "...":
        return set(range(ndim - 1))
    over = {"*" if name == "+" else name for name in over}
    names = names if len(names) == ndim else [*names[:2], *["*"] * (ndim - 2)]
    return {axis for axis, name in enumerate(names) if name != "C" and ("*" if name == "+" else name) not in over}


def _whole_but_for(part: Parts, samples: int, module: nn.Module) -> bool:
    """Whether samples alone are cut, along one axis of the mesh, and nothing else is to be joined or is cut."""
    joins = any(getattr(m, "sync", False) for m in module.modules())
    everyone = part.whole.device_mesh.size() == processes()
    groups = {getattr(m, "process_group", None) for m in module.modules()}
    placed = (getattr(b, "placements", ()) for b in module.buffers())
    return (
        set(part.axes) <= {samples, None}
        and len(part.groups((samples,))) <= 1
        and (not joins or (everyone and groups == {None}))
        and all(place.is_replicate() for places in placed for place in places)
    )


@contextlib.contextmanager
def _on_part(module: nn.Module, part: Parts, groups: tuple[Any, ...]) -> Iterator[None]:
    """Put this process' tensors in the places of a module's DTensors, and let it join over the groups."""
    before = [
        (m, m._parameters, m._buffers, {k: m.__dict__[k] for k in _JOINING if k in m.__dict__})
        for m in module.modules()
    ]
    try:
        for m, parameters, buffers, joining in before:
            own = {name: part.parameter(module, name, p, part.whole.ndim) for name, p in parameters.items()}
            local: Any = {name: b.to_local() if is_sharded(b) else b for name, b in buffers.items()}  # type: ignore
            m.__dict__.update(_parameters=own, _buffers=local)
            if joining:
                m.__dict__.update(sync=bool(groups), process_group=groups[0] if groups else None)
        yield
    finally:
        for m, parameters, buffers, joining in before:
            m.__dict__.update(joining, _parameters=parameters, _buffers=buffers)


def beyond(owner: object, part: Parts, group: Any) -> Any:
    """The processes that hold other samples than those of the mesh of x."""
    mesh = part.whole.device_mesh
    if group is None or set(torch.distributed.get_process_group_ranks(group)) & set(mesh.mesh.flatten().tolist()) != {
        torch.distributed.get_rank()
    }:
        raise ValueError(
            f"{check.whose(owner)}: with sync, x on the mesh {_words(mesh)} needs a process_group, that of the "
            "processes which hold other samples; it has one process of the mesh"
        )
    return group


def sum_over_mesh(x: Tensor, part: Parts, along: Sequence[int]) -> Tensor:
    """Add up over the processes along axes of the mesh; the gradient likewise."""
    return sum_over_processes(x, _groups(part.whole.device_mesh, along))


def _groups(mesh: Any, along: Sequence[int]) -> tuple[Any, ...]:
    """The processes along axes of a mesh: one group for all axes where they are all processes, else one for each."""
    if len(along) == mesh.ndim and mesh.size() == processes():
        return (torch.distributed.group.WORLD,)
    return tuple(mesh.get_group(at) for at in along)


def everyone(mesh: Any) -> Any:
    """The processes of a mesh as one group."""
    if mesh.ndim == 1:
        return mesh.get_group()
    return torch.distributed.group.WORLD if mesh.size() == processes() else mesh._flatten().get_group()


def own_sums(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Sum and sum of squares over axes of a process' own values, stacked, in float64.

    The squares are taken about the own mean, and that mean's about 0 in float64: so sums of several processes join
    without the loss that sums of squares have at an offset.
    """
    wide = accurate(x)
    count = math.prod([x.shape[axis] for axis in axes])
    mean = wide.sum(tuple(axes), keepdim=True) / max(count, 1)
    apart = wide - mean
    left = apart.detach().sum(tuple(axes), keepdim=True).double() / max(count, 1)  # what rounding took from the mean
    squares = apart.square().sum(tuple(axes), keepdim=True).double() - count * left.square()
    exact = mean.double() + left
    return torch.stack([count * exact, squares + count * exact.square()])


def centered(part: Parts, x: Tensor, axes: tuple[int, ...], along: Sequence[int], total: int) -> tuple[Tensor, Tensor]:
    """The values less the mean of all processes' values, ``total`` a statistic, and the sum of the squares of all."""
    s, q = sum_over_mesh(own_sums(x, axes), part, along)
    joined = s / total
    return less(x, joined), (q - total * joined.square()).clamp(min=0)


def less(x: Tensor, mean: Tensor) -> Tensor:
    """Subtract a mean in float64 from values in the type of the arithmetic, without its last digits' being lost."""
    wide = accurate(x)
    near = mean.detach().to(wide.dtype)
    return (wide - near) - (mean - near).to(wide.dtype)


def _words(mesh: Any) -> str:
    return f"{'x'.join(map(str, mesh.shape))} {mesh.mesh.flatten().tolist()}"
