"""Tensors that lie on several processes, and matrices that are shared out over them: each is worked on by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from normkit.statistics import accurate, processes

Work = Callable[[list[Tensor]], list[Tensor]]


def is_sharded(tensors: Sequence[Tensor]) -> bool:
    """Whether some are distributed tensors."""
    if not distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return any(isinstance(x, DTensor) for x in tensors)


def is_any(flag: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether the flag is up on some process that holds a part of the tensors."""
    return bool(_most(flag.float(), tensors))


def largest(tensor: Tensor) -> Tensor:
    """The largest entry of a tensor whose entries are not negative, on all processes; of none, 0."""
    own = local(tensor)
    return _most(own.max() if own.numel() else own.new_zeros(()), [tensor])


def largest_size(tensor: Tensor) -> Tensor:
    """The largest absolute value of a tensor, on all processes; of none, 0."""
    own = local(tensor)
    most = torch.stack(own.aminmax()).abs().max() if own.numel() else own.new_zeros(())  # one pass, which keeps nothing
    return _most(most, [tensor])


def _most(value: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    for mesh in dict.fromkeys(x.device_mesh for x in tensors if is_sharded([x])):  # type: ignore[attr-defined]
        for axis in range(mesh.ndim):
            distributed.all_reduce(value, distributed.ReduceOp.MAX, group=mesh.get_group(axis))
    return value


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: of one that is not distributed, all."""
    return tensor.to_local() if is_sharded([tensor]) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all of its parts."""
    return tensor.full_tensor() if is_sharded([tensor]) else tensor  # type: ignore[attr-defined]


def together(tensors: Sequence[Tensor]) -> Tensor:
    """The length of all tensors as one, with all of their parts.

    >>> float(together([torch.tensor([3.0]), torch.tensor([0.0, 4.0])])), float(together([]))
    (5.0, 0.0)
    """
    lengths = [whole(torch.linalg.vector_norm(accurate(x))) for x in tensors]
    return torch.linalg.vector_norm(torch.stack([x.to(lengths[0]) for x in lengths])) if lengths else torch.zeros(())


def settled(tensor: Tensor) -> Tensor:
    """A tensor whose parts are no terms of a sum that is still to be taken."""
    if not is_sharded([tensor]):
        return tensor
    from torch.distributed.tensor import Replicate

    own: Any = tensor
    return own.redistribute(placements=[Replicate() if p.is_partial() else p for p in own.placements])


def place(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor that is cut as another is."""
    return tensor.redistribute(placements=like.placements) if is_sharded([tensor]) else tensor  # type: ignore[attr-defined]


def like(local: Tensor, tensor: Tensor) -> Tensor:
    """A tensor of the shape and on the processes of another, of which this process holds ``local``."""
    if not is_sharded([tensor]):
        return local
    from torch.distributed.tensor import DTensor

    own: Any = tensor
    mesh, placements = own.device_mesh, own.placements
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=own.shape, stride=own.stride())


def shared_out(xs: Sequence[Tensor], work: Work, *, sync: bool = False, process_group: Any = None) -> list[Tensor]:
    """Do some work on tensors, each whole on one process; the results lie where the tensors do.

    Args:
        xs: tensors; of distributed ones each process passes its parts.
        work: what is done with some of them; results have the shapes and types of what they are made of.
        sync: plain tensors are the same on all processes of ``process_group``: each works on some of them.
    """
    return _each(xs, lambda way, own: way.shared(own, work, sync, process_group))


def shared_bases(
    xs: Sequence[Tensor], work: Callable[[Tensor], Tensor], *, sync: bool = False, process_group: Any = None
) -> list[Tensor]:
    """Work out a square matrix of the shorter side of each matrix on one process; all get it."""
    return _each(xs, lambda way, own: way.bases(own, work, sync, process_group))


def _each(xs: Sequence[Tensor], call: Callable[[Any, list[Tensor]], list[Tensor]]) -> list[Tensor]:
    found: list[Tensor] = [torch.empty(0)] * len(xs)
    ways: dict[Any, list[int]] = {}
    for i, x in enumerate(xs):
        ways.setdefault((_way(x), x.dtype, x.device), []).append(i)
    for (way, *_), places in ways.items():
        for i, result in zip(places, call(way, [xs[i] for i in places]), strict=True):
            found[i] = result
    return found


class Plain(NamedTuple):
    """Tensors that are whole on every process."""

    def shared(self, xs: list[Tensor], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Work on some, and tell the others the results."""
        if not sync or processes(group) == 1:
            return work(xs)
        return _told(xs, [x.shape for x in xs], work, group)

    def bases(self, xs: list[Tensor], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Work out some, and tell the others."""
        if not sync or processes(group) == 1:
            return [work(x) for x in xs]
        return _told(xs, [_square(x) for x in xs], lambda own: [work(x) for x in own], group)


class Parted(NamedTuple):
    """Distributed tensors that one axis of their mesh cuts, and the others repeat."""

    mesh: Any
    axis: int

    def shared(self, xs: list[Any], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Bring the parts of each to one process, and the parts of the result back."""
        cuts = [Cut(x.shape, x.placements[self.axis].dim, self.mesh.size(self.axis)) for x in xs]
        owners = shares([x.shape for x in xs], self.mesh.size(self.axis))
        results = work(self._gather(xs, cuts, owners))
        return [like(part, x) for part, x in zip(self._scatter(xs, results, cuts, owners), xs, strict=True)]

    def bases(self, xs: list[Any], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Bring the parts of each to one process, and tell all the result."""
        cuts = [Cut(x.shape, x.placements[self.axis].dim, self.mesh.size(self.axis)) for x in xs]
        owners = shares([x.shape for x in xs], self.mesh.size(self.axis))
        mine = [work(x) for x in self._gather(xs, cuts, owners)]
        told = _broadcast(mine, [_square(x) for x in xs], owners, xs[0].to_local(), self.mesh.get_group(self.axis))
        return [_everywhere(q, x) for q, x in zip(told, xs, strict=True)]

    def _gather(self, xs: list[Any], cuts: list[Cut], owners: list[int]) -> list[Tensor]:
        """The tensors that this process owns, whole."""
        rank, size = self.mesh.get_local_rank(self.axis), self.mesh.size(self.axis)
        mine = [cut for cut, owner in zip(cuts, owners, strict=True) if owner == rank]
        sent = [[x.to_local() for x, o in zip(xs, owners, strict=True) if o == to] for to in range(size)]
        wanted = [[cut.part(source) for cut in mine] for source in range(size)]
        parts = _exchange(sent, wanted, xs[0].to_local(), self.mesh.get_group(self.axis))
        return [torch.cat(pieces, cut.dim) for cut, *pieces in zip(mine, *parts, strict=True)]

    def _scatter(self, xs: list[Any], results: list[Tensor], cuts: list[Cut], owners: list[int]) -> list[Tensor]:
        """This process' parts of what all processes have found."""
        rank, size = self.mesh.get_local_rank(self.axis), self.mesh.size(self.axis)
        mine = [cut for cut, owner in zip(cuts, owners, strict=True) if owner == rank]
        sent = [[cut.take(y, to) for cut, y in zip(mine, results, strict=True)] for to in range(size)]
        wanted = [
            [cut.part(rank) for cut, o in zip(cuts, owners, strict=True) if o == source] for source in range(size)
        ]
        parts = [iter(own) for own in _exchange(sent, wanted, xs[0].to_local(), self.mesh.get_group(self.axis))]
        return [next(parts[owner]) for owner in owners]


class Whole(NamedTuple):
    """Distributed tensors that are repeated, or stacks of matrices of which each process has whole ones."""

    mesh: Any

    def shared(self, xs: list[Any], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Work on what there is."""
        own = [x.to_local() for x in xs]
        repeated = all(p.is_replicate() for x in xs for p in x.placements)
        results = _told(own, [x.shape for x in own], work, _everyone(self.mesh)) if repeated else work(own)
        return [like(y, x) for y, x in zip(results, xs, strict=True)]

    def bases(self, xs: list[Any], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Work out some, and tell the others."""
        own, group = [x.to_local() for x in xs], _everyone(self.mesh)
        told = _told(own, [_square(x) for x in own], lambda own: [work(x) for x in own], group)
        return [_everywhere(q, x) for q, x in zip(told, xs, strict=True)]


class Mixed(NamedTuple):
    """Distributed tensors that several axes of their mesh cut, such as those of tensor parallelism under FSDP."""

    mesh: Any

    def shared(self, xs: list[Any], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Make all whole everywhere, work on some, and keep the parts."""
        own = [x.full_tensor() for x in xs]
        results = _told(own, [x.shape for x in own], work, _everyone(self.mesh))
        return [like(_own_part(y, x), x) for y, x in zip(results, xs, strict=True)]

    def bases(self, xs: list[Any], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Make all whole everywhere, work out some, and tell the others."""
        own, group = [x.full_tensor() for x in xs], _everyone(self.mesh)
        told = _told(own, [_square(x) for x in own], lambda own: [work(x) for x in own], group)
        return [_everywhere(q, x) for q, x in zip(told, xs, strict=True)]


def _way(x: Any) -> Any:
    """How a tensor lies on the processes."""
    if not is_sharded([x]):
        return Plain()
    from torch.distributed.tensor import Shard

    mesh = x.device_mesh
    cut = [axis for axis, p in enumerate(x.placements) if not p.is_replicate() and mesh.size(axis) > 1]
    plain = all(type(x.placements[axis]) is Shard for axis in cut)
    if plain and (not cut or (x.dim() == 3 and all(x.placements[axis].dim == 0 for axis in cut))):
        return Whole(mesh)
    return Parted(mesh, cut[0]) if plain and len(cut) == 1 else Mixed(mesh)


class Cut(NamedTuple):
    """How a tensor is cut along an axis: all parts but the last ones are equally large."""

    shape: torch.Size
    dim: int
    size: int

    def range(self, rank: int) -> tuple[int, int]:
        """Where a part begins, and its length.

        >>> [Cut(torch.Size([5, 2]), 0, 4).range(rank) for rank in range(4)]
        [(0, 2), (2, 2), (4, 1), (5, 0)]
        """
        length = self.shape[self.dim]
        each = -(-length // self.size)
        start = min(rank * each, length)
        return start, min(each, length - start)

    def part(self, rank: int) -> torch.Size:
        """The shape of a part."""
        return torch.Size([*self.shape[: self.dim], self.range(rank)[1], *self.shape[self.dim + 1 :]])

    def take(self, tensor: Tensor, rank: int) -> Tensor:
        """A part of a whole tensor."""
        return tensor.narrow(self.dim, *self.range(rank))


def shares(shapes: Sequence[torch.Size], size: int) -> list[int]:
    """Which process works on each: the heaviest first, each to the one that has least to do by then.

    >>> shares([torch.Size([2, 2]), torch.Size([8, 8]), torch.Size([2, 3])], 2)
    [1, 0, 1]
    """
    work = [math.prod(shape) * min(shape[-2:], default=1) for shape in shapes]
    load, owners = [0] * size, [0] * len(shapes)
    for i in sorted(range(len(shapes)), key=lambda i: -work[i]):
        owners[i] = load.index(min(load))
        load[owners[i]] += work[i]
    return owners


def _square(x: Tensor) -> torch.Size:
    return torch.Size([min(x.shape)] * 2)


def _everyone(mesh: Any) -> Any:
    """The processes of a mesh as one group."""
    if mesh.ndim == 1:
        return mesh.get_group()
    return None if mesh.size() == distributed.get_world_size() else mesh._flatten().get_group()


def _everywhere(q: Tensor, x: Any) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(q, x.device_mesh, [Replicate()] * x.device_mesh.ndim, run_check=False)


def _own_part(tensor: Tensor, x: Any) -> Tensor:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, start = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
    return tensor[tuple(slice(at, at + length) for at, length in zip(start, shape, strict=True))].contiguous()


def part_of(tensor: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that this process holds of another of its shape."""
    return _own_part(tensor, like) if is_sharded([like]) else tensor


def _told(xs: list[Tensor], shapes: list[torch.Size], work: Work, group: Any) -> list[Tensor]:
    """Work on this process' share, and tell the results."""
    owners = shares([x.shape for x in xs], processes(group))
    mine = work([x for x, owner in zip(xs, owners, strict=True) if owner == distributed.get_rank(group)])
    return _broadcast(mine, shapes, owners, xs[0], group)


def _broadcast(
    mine: list[Tensor], shapes: list[torch.Size], owners: list[int], like: Tensor, group: Any
) -> list[Tensor]:
    """Tell all processes what each has found, in one message of each."""
    found = []
    everyone: Any = group or distributed.group.WORLD
    for owner in range(processes(group)):
        own = [shape for shape, o in zip(shapes, owners, strict=True) if o == owner]
        flat = like.new_empty(sum(map(math.prod, own)))
        if owner == distributed.get_rank(group):
            flat = torch.cat([like.new_empty(0), *(x.reshape(-1) for x in mine)])
        if own:
            distributed.broadcast(flat, distributed.get_global_rank(everyone, owner), group)
        found.append(iter(_apart(flat, own)))
    return [next(found[owner]) for owner in owners]


def _apart(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Cut a message into tensors."""
    pieces = flat.split([math.prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _exchange(sent: list[list[Tensor]], wanted: list[list[torch.Size]], like: Tensor, group: Any) -> list[list[Tensor]]:
    """Send tensors to each process, and return those that each has sent, of the shapes ``wanted``."""
    outgoing = torch.cat([like.new_empty(0), *(x.reshape(-1) for x in itertools.chain(*sent))])
    sizes = [sum(math.prod(shape) for shape in own) for own in wanted]
    incoming = like.new_empty(sum(sizes))
    distributed.all_to_all_single(incoming, outgoing, sizes, [sum(x.numel() for x in own) for own in sent], group=group)
    return [_apart(flat, own) for flat, own in zip(incoming.split(sizes), wanted, strict=True)]
