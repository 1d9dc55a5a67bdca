"""Norms of DTensors: each process works on its own part, and what is sent is one sum of moments, where one is needed.

Where whole vectors lie on a process (samples, positions or heads are sharded) its part is an ordinary tensor, which the
kernel takes; nothing is sent. Where the entries of a vector are sharded, each process sums up its own, one all-reduce
adds these moments up, and the rest is done apart; the backward pass sends one sum as well. The result has the
placements of the input. What is Partial is reduced first, since a norm is not linear.

The gradient of a replicated gain is Partial along the axes of the mesh on which the rows or the entries are sharded:
each process has its rows' or its entries' share in it, as with torch's own norms.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.statistics import accurate, processes, sum_over_processes

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_JOINING = ("sync", "process_group")

__all__ = ["Parts", "by_samples", "is_sharded", "parts"]


def is_sharded(x: Tensor) -> bool:
    """Whether a tensor is a DTensor whose norm is computed on its parts; torch.compile sees torch's own operations."""
    known = sys.modules.get("torch.distributed.tensor")  # nobody has a DTensor without it
    return known is not None and isinstance(x, known.DTensor) and not torch.compiler.is_compiling()


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

    def parameter(self, owner: object, name: str, value: Tensor | None, first: int) -> Tensor | None:
        """What of a gain this part needs, whose axes are those of the whole from ``first`` on, or a single number."""
        from torch.distributed.tensor import Partial, Replicate, Shard

        if value is None:
            return None
        value = self._on_mesh(owner, name, value)
        ends = range(first, first + value.ndim)
        single = value.numel() == 1 and value.shape != self.whole.shape[first : ends.stop]
        kept: list[Any] = []
        for axis, place in zip(self.axes, value.placements, strict=True):
            shared = axis in ends and not single and place == Shard(axis - first)  # type: ignore[operator]
            kept.append(place if shared else Replicate())
        if tuple(kept) != value.placements:
            value = value.redistribute(placements=kept)
        shares = [
            Partial() if axis is not None and place.is_replicate() else place
            for axis, place in zip(self.axes, kept, strict=True)
        ]
        own = value.to_local(grad_placements=shares)
        if single:
            return own
        for axis, size in enumerate(self.local.shape[first : ends.stop]):
            if own.shape[axis] != size:  # replicated, where the entries of x are sharded
                own = own.narrow(axis, self.begin[first + axis], size)
        return own

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


def parts(owner: object, x: DTensor) -> Parts | None:
    """Cut a DTensor; None where it is placed otherwise than by whole shards, copies and sums."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not all(type(place) in (Shard, Replicate) or place.is_partial() for place in x.placements):
        return None
    copied = [Replicate() if place.is_partial() else place for place in x.placements]
    x = x if tuple(copied) == x.placements else x.redistribute(placements=copied)
    axes = tuple(place.dim % x.ndim if isinstance(place, Shard) else None for place in copied)
    _, begin = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
    return Parts(x, x.to_local(), tuple(begin), axes)


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
            local: Any = {name: getattr(b, "to_local", lambda b=b: b)() for name, b in buffers.items()}
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


def centered(part: Parts, x: Tensor, axes: tuple[int, ...], along: Sequence[int], total: int) -> tuple[Tensor, Tensor]:
    """The values less the mean of all processes' values, ``total`` a statistic, and the sum of the squares of all.

    Each process sends its sum, and its squares about its own mean with that mean's about 0, in float64: two numbers a
    statistic, which join without the loss that sums of squares have at an offset.
    """
    wide = accurate(x)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = wide.sum(axes, keepdim=True) / max(count, 1)
    apart = wide - mean
    left = apart.detach().sum(axes, keepdim=True).double() / max(count, 1)  # what rounding took from the mean
    squares = apart.square().sum(axes, keepdim=True).double() - count * left.square()
    exact = mean.double() + left
    s, q = sum_over_mesh(torch.stack([count * exact, squares + count * exact.square()]), part, along)
    joined = s / total
    near = joined.detach().to(wide.dtype)
    z = (wide - near) - (joined - near).to(wide.dtype)
    return z, (q - total * joined.square()).clamp(min=0)


def _words(mesh: Any) -> str:
    return f"{'x'.join(map(str, mesh.shape))} {mesh.mesh.flatten().tolist()}"
