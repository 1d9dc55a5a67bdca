"""Tensors that lie on several processes, and matrices that are shared out over them: each is worked on by one."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from normkit.ops import sharded
from normkit.ops.sharded import everyone, whole
from normkit.statistics import accurate, processes, require_equal_sizes

Work = Callable[[list[Tensor]], list[Tensor]]


def is_sharded(tensors: Sequence[Tensor]) -> bool:
    """Whether some are distributed tensors."""
    return any(map(sharded.is_sharded, tensors))


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


def together(tensors: Sequence[Tensor]) -> Tensor:
    """The length of all tensors as one, with all of their parts.

    >>> float(together([torch.tensor([3.0]), torch.tensor([0.0, 4.0])])), float(together([]))
    (5.0, 0.0)
    """
    lengths = [whole(torch.linalg.vector_norm(accurate(x))) for x in tensors]
    return torch.linalg.vector_norm(torch.stack([x.to(lengths[0]) for x in lengths])) if lengths else torch.zeros(())


def placed_as(tensor: Tensor, like: Tensor) -> Tensor:
    """A gradient that is cut as its parameter is; terms of a sum that is still to be taken are added up."""
    if not (is_sharded([tensor]) and is_sharded([like])):
        return tensor
    same = tensor.placements == like.placements  # type: ignore[attr-defined]
    return tensor if same else place(tensor, like)


def reduce(tensor: Tensor) -> Tensor:
    """A tensor whose parts are no terms of a sum that is still to be taken."""
    if not is_sharded([tensor]):
        return tensor
    from torch.distributed.tensor import Replicate

    own: Any = tensor
    return own.redistribute(placements=[Replicate() if p.is_partial() else p for p in own.placements])


def lengths_along(xs: Sequence[Tensor], dim: int) -> list[Tensor]:
    """The lengths of vectors along an axis, which is kept; what processes must add up for it goes in one message.

    >>> lengths_along([torch.tensor([[3.0, 4.0]])], -1)
    [tensor([[5.]])]
    """
    lengths = [torch.linalg.vector_norm(local(x), dim=dim, keepdim=True) for x in xs]
    ways: dict[Any, list[int]] = {}
    for i, x in enumerate(xs):
        if is_sharded([x]):
            own: Any = x
            cut = tuple(at for at, p in enumerate(own.placements) if not p.is_replicate() and p.dim == dim % x.dim())
            ways.setdefault((own.device_mesh, cut, lengths[i].dtype), []).append(i)
    for (mesh, cut, _), places in ways.items():
        if cut:
            squares = torch.cat([lengths[i].square().flatten() for i in places])
            for at in cut:
                distributed.all_reduce(squares, group=mesh.get_group(at))
            for i, part in zip(places, _apart(squares.sqrt(), [lengths[i].shape for i in places]), strict=True):
                lengths[i] = part
        for i in places:
            lengths[i] = _shorten(lengths[i], xs[i], cut, dim)
    return lengths


def _shorten(part: Tensor, x: Any, cut: tuple[int, ...], dim: int) -> Tensor:
    """Numbers for the vectors of a tensor along an axis, on the processes of these."""
    from torch.distributed.tensor import DTensor, Replicate

    shape = list(x.shape)
    shape[dim] = 1
    places = [Replicate() if at in cut else p for at, p in enumerate(x.placements)]
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part, x.device_mesh, places, run_check=False, shape=torch.Size(shape), stride=stride)


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
    outputs: list[Tensor] = [torch.empty(0)] * len(xs)
    ways: dict[Any, list[int]] = {}
    for i, x in enumerate(xs):
        ways.setdefault((_way(x), x.dtype, x.device), []).append(i)
    for (way, *_), places in ways.items():
        for i, result in zip(places, call(way, [xs[i] for i in places]), strict=True):
            outputs[i] = result
    return outputs


class Plain(NamedTuple):
    """Tensors that are whole on every process."""

    def shared(self, xs: list[Tensor], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Work on some, and tell the others the results."""
        if not sync or processes(group) == 1:
            return work(xs)
        return _share_work(xs, [x.shape for x in xs], work, group)

    def bases(self, xs: list[Tensor], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Work out some, and tell the others."""
        if not sync or processes(group) == 1:
            return [work(x) for x in xs]
        return _share_work(xs, [_square(x) for x in xs], lambda own: [work(x) for x in own], group)


class Parted(NamedTuple):
    """Distributed tensors whose matrices some axes of their mesh cut, such as those of tensor parallelism under FSDP.

    The other axes repeat them, or share out stacks of whole matrices: there each process works on its own.
    """

    mesh: Any
    axes: tuple[int, ...]

    def shared(self, xs: list[Any], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Bring the parts of each to one process, and the parts of the result back."""
        layouts, owners = self._layouts(xs)
        results = work(self._gather(xs, layouts, owners))
        return [like(part, x) for part, x in zip(self._scatter(xs, results, layouts, owners), xs, strict=True)]

    def bases(self, xs: list[Any], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Bring the parts of each to one process, and tell all the result."""
        layouts, owners = self._layouts(xs)
        mine = [work(x) for x in self._gather(xs, layouts, owners)]
        group = _group(self.mesh, self.axes)
        shared = _broadcast(mine, [_square(x) for x in xs], owners, xs[0].to_local(), group)
        return [_everywhere(q, x) for q, x in zip(shared, xs, strict=True)]

    def _layouts(self, xs: list[Any]) -> tuple[list[Layout], list[int]]:
        """How each tensor lies on the processes of the group, and which of them works on it."""
        layouts = [_layout(_uncut(x, self.axes), x.placements, self.mesh, self.axes) for x in xs]
        return layouts, shares([layout.shape for layout in layouts], len(layouts[0].parts))

    def _gather(self, xs: list[Any], layouts: list[Layout], owners: list[int]) -> list[Tensor]:
        """The tensors that this process owns, whole."""
        group = _group(self.mesh, self.axes)
        rank, count = distributed.get_rank(group), len(layouts[0].parts)
        mine = [layout for layout, owner in zip(layouts, owners, strict=True) if owner == rank]
        sent = [
            [x.to_local() for x, own, o in zip(xs, layouts, owners, strict=True) if o == to and own.first[rank]]
            for to in range(count)
        ]
        expected = [[own.size(source) for own in mine if own.first[source]] for source in range(count)]
        like = xs[0].to_local()
        parts = [iter(pieces) for pieces in _exchange(sent, expected, like, group)]
        wholes = [like.new_empty(layout.shape) for layout in mine]
        for layout, tensor in zip(mine, wholes, strict=True):
            for source in range(count):
                if layout.first[source]:
                    tensor[layout.at(source)] = next(parts[source])
        return wholes

    def _scatter(self, xs: list[Any], results: list[Tensor], layouts: list[Layout], owners: list[int]) -> list[Tensor]:
        """This process' parts of the results of all processes."""
        group = _group(self.mesh, self.axes)
        rank, count = distributed.get_rank(group), len(layouts[0].parts)
        mine = [layout for layout, owner in zip(layouts, owners, strict=True) if owner == rank]
        sent = [[y[layout.at(to)] for layout, y in zip(mine, results, strict=True)] for to in range(count)]
        expected = [
            [layout.size(rank) for layout, o in zip(layouts, owners, strict=True) if o == source]
            for source in range(count)
        ]
        parts = [iter(own) for own in _exchange(sent, expected, xs[0].to_local(), group)]
        return [next(parts[owner]) for owner in owners]


class Whole(NamedTuple):
    """Distributed tensors that are repeated, or stacks of matrices of which each process has whole ones."""

    mesh: Any

    def shared(self, xs: list[Any], work: Work, sync: bool, group: Any) -> list[Tensor]:
        """Work on what there is."""
        own = [x.to_local() for x in xs]
        repeated = all(p.is_replicate() for x in xs for p in x.placements)
        results = _share_work(own, [x.shape for x in own], work, everyone(self.mesh)) if repeated else work(own)
        return [like(y, x) for y, x in zip(results, xs, strict=True)]

    def bases(self, xs: list[Any], work: Callable[[Tensor], Tensor], sync: bool, group: Any) -> list[Tensor]:
        """Work out some, and tell the others."""
        own, group = [x.to_local() for x in xs], everyone(self.mesh)
        shared = _share_work(own, [_square(x) for x in own], lambda own: [work(x) for x in own], group)
        return [_everywhere(q, x) for q, x in zip(shared, xs, strict=True)]


def _way(x: Any) -> Any:
    """How a tensor lies on the processes."""
    if not is_sharded([x]):
        return Plain()
    mesh = x.device_mesh
    cut = [axis for axis, place in enumerate(x.placements) if not place.is_replicate() and mesh.size(axis) > 1]
    inside = tuple(axis for axis in cut if x.dim() != 3 or x.placements[axis].dim != 0)
    if not inside:
        return Whole(mesh)
    known = len(inside) in (1, mesh.ndim) or mesh.mesh_dim_names is not None
    return Parted(mesh, inside if known else tuple(range(mesh.ndim)))


class Layout(NamedTuple):
    """How a tensor lies on the processes of a group: along each axis the entries of each process, in a range or listed.

    ``first`` says which of the processes are the first that hold their part.
    """

    shape: torch.Size
    parts: tuple[tuple[range | Tensor, ...], ...]
    first: tuple[bool, ...]

    def size(self, rank: int) -> torch.Size:
        """The shape of a part."""
        return torch.Size(map(len, self.parts[rank]))

    def at(self, rank: int) -> tuple[Any, ...]:
        """The index of a part in the whole."""
        part = self.parts[rank]
        ranges = [entries for entries in part if isinstance(entries, range)]
        if len(ranges) == len(part):
            return tuple(slice(entries.start, entries.stop) for entries in ranges)
        lists = [torch.as_tensor(entries) for entries in part]
        return tuple(entries.view(-1, *[1] * (len(lists) - 1 - axis)) for axis, entries in enumerate(lists))


@functools.lru_cache(maxsize=4096)  # the same at every step
def _layout(shape: torch.Size, placements: tuple[Any, ...], mesh: Any, axes: tuple[int, ...]) -> Layout:
    """How a tensor whose matrices some axes of a mesh cut lies on the processes along these axes."""
    _require_known(placements)
    parts, first = [], []
    for rank in distributed.get_process_group_ranks(_group(mesh, axes)):
        place = (mesh.mesh == rank).nonzero()[0].tolist()
        part: list[range | Tensor] = [range(size) for size in shape]
        for axis in axes:
            if not placements[axis].is_replicate():
                dim = placements[axis].dim
                part[dim] = part_along(part[dim], placements[axis], mesh.size(axis), place[axis])
        parts.append(tuple(part))
        first.append(not any(place[axis] for axis in axes if placements[axis].is_replicate()))
    return Layout(shape, tuple(parts), tuple(first))


def _require_known(placements: tuple[Any, ...]) -> None:
    """Require placements of which torch itself knows the order of the entries."""
    from torch.distributed.tensor.placement_types import _StridedShard

    strided = [place.dim for place in placements if isinstance(place, _StridedShard)]
    if len(set(strided)) < len(strided):
        raise ValueError(
            f"placements {placements} do not say in which order the entries lie; two maps in one matrix, such as a "
            "gate and what it opens, are cut further along another axis: fully_shard(..., shard_placement_fn=lambda p: "
            "Shard(1) if p.dim() > 1 else None)"
        )


def part_along(entries: Any, placement: Any, size: int, rank: int) -> Any:
    """The entries of one of several processes: all have equally many but the last ones.

    >>> from torch.distributed.tensor import Shard
    >>> [list(part_along(range(5), Shard(0), 4, rank)) for rank in range(4)]
    [[0, 1], [2, 3], [4], []]
    """
    from torch.distributed.tensor.placement_types import _StridedShard

    if isinstance(placement, _StridedShard):  # as torch cuts it, left to right
        line = _StridedShard(0, split_factor=placement.split_factor)
        return line._split_tensor(torch.as_tensor(entries), size, with_padding=False)[0][rank]
    each = -(-len(entries) // size)
    return entries[min(rank * each, len(entries)) : (rank + 1) * each]


def _uncut(x: Any, axes: tuple[int, ...]) -> torch.Size:
    """The shape of what the processes along some axes of the mesh hold together: its matrices are whole."""
    cut = {x.placements[axis].dim for axis in axes if not x.placements[axis].is_replicate()}
    return torch.Size(x.shape[dim] if dim in cut else own for dim, own in enumerate(x.to_local().shape))


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


def _group(mesh: Any, axes: tuple[int, ...]) -> Any:
    """The processes along some axes of a mesh, this one among them."""
    if len(axes) == 1:
        return mesh.get_group(axes[0])
    named = mesh.mesh_dim_names is not None and len(axes) < mesh.ndim
    return everyone(mesh[tuple(mesh.mesh_dim_names[axis] for axis in axes)] if named else mesh)


def _everywhere(q: Tensor, x: Any) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(q, x.device_mesh, [Replicate()] * x.device_mesh.ndim, run_check=False)


def part_of(tensor: Tensor, like: Any) -> Tensor:
    """The part of a whole tensor that this process holds of another of its shape."""
    if not is_sharded([like]):
        return tensor
    axes = tuple(range(like.device_mesh.ndim))
    layout = _layout(tensor.shape, like.placements, like.device_mesh, axes)
    return tensor[layout.at(distributed.get_rank(_group(like.device_mesh, axes)))].contiguous()


def _share_work(xs: list[Tensor], shapes: list[torch.Size], work: Work, group: Any) -> list[Tensor]:
    """Work on this process' share, and tell the results."""
    owners = shares([x.shape for x in xs], processes(group))
    require_equal_sizes(sum([x.numel() for x in xs]), group or distributed.group.WORLD)
    mine = work([x for x, owner in zip(xs, owners, strict=True) if owner == distributed.get_rank(group)])
    return _broadcast(mine, shapes, owners, xs[0], group)


def _broadcast(
    mine: list[Tensor], shapes: list[torch.Size], owners: list[int], like: Tensor, group: Any
) -> list[Tensor]:
    """Tell all processes what each has found, in one message of each."""
    chunks = []
    everyone: Any = group or distributed.group.WORLD
    for owner in range(processes(group)):
        own = [shape for shape, o in zip(shapes, owners, strict=True) if o == owner]
        flat = like.new_empty(sum(map(math.prod, own)))
        if owner == distributed.get_rank(group):
            flat = torch.cat([like.new_empty(0), *(x.reshape(-1) for x in mine)])
        if own:
            distributed.broadcast(flat, distributed.get_global_rank(everyone, owner), group)
        chunks.append(iter(_apart(flat, own)))
    return [next(chunks[owner]) for owner in owners]


def _apart(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Cut a message into tensors."""
    pieces = flat.split([math.prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _exchange(sent: list[list[Tensor]], shapes: list[list[torch.Size]], like: Tensor, group: Any) -> list[list[Tensor]]:
    """Send tensors to each process, and return those that each has sent, of such ``shapes``."""
    outgoing = torch.cat([like.new_empty(0), *(x.reshape(-1) for x in itertools.chain(*sent))])
    sizes = [sum(math.prod(shape) for shape in own) for own in shapes]
    incoming = like.new_empty(sum(sizes))
    distributed.all_to_all_single(incoming, outgoing, sizes, [sum(x.numel() for x in own) for own in sent], group=group)
    return [_apart(flat, own) for flat, own in zip(incoming.split(sizes), shapes, strict=True)]
