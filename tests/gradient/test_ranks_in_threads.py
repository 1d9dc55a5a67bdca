"""What optimizers ask of tensors that lie on several processes, on four ranks that are threads of this process."""

import pytest
import torch
from torch import distributed

import normkit as nk
from normkit.gradient import _sharded
from processes import numbers
from threads import each_rank

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch has no torch.distributed")
SHAPES = [(6, 8), (5, 7), (3, 4), (4, 2, 6), (9,)]


def placements(dims):
    """How a tensor can lie on a mesh of two by two."""
    from torch.distributed.tensor import Replicate, Shard

    whole, first, last = Replicate(), Shard(0), Shard(dims - 1)
    ways = [(whole, whole), (first, whole), (whole, last), (first, last), (last, first)]
    return ways[:3] if dims == 1 else ways


def laid_out(meshes=((2, 2), (4,))):
    """Tensors of several shapes, whole and in parts, in each way."""
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    for sizes in meshes:
        mesh = init_device_mesh("cpu", sizes)
        for shape in SHAPES:
            for way in placements(len(shape)):
                x = numbers(*shape)
                yield x, distribute_tensor(x, mesh, way[: len(sizes)])


def same(parts, x):
    torch.testing.assert_close(_sharded.whole(parts), x)


def lengths():
    for x, parts in laid_out():
        for dim in range(-x.dim(), x.dim()):
            both = _sharded.lengths_along([parts, parts * 2], dim)
            length = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
            for factor, part in zip((1, 2), both, strict=True):
                assert part.shape == length.shape
                same(part, factor * length)


def sizes():
    for x, parts in laid_out():
        same(_sharded.together([parts, parts]), torch.linalg.vector_norm(x) * 2**0.5)
        assert _sharded.largest(parts.abs()) == x.abs().max() == _sharded.largest_size(parts)
        assert _sharded.is_any((_sharded.local(parts) == x.max()).any(), [parts]), "one rank has it"
        assert not _sharded.is_any((_sharded.local(parts) > x.max()).any(), [parts])


def parts():
    for x, parts in laid_out():
        own = _sharded.local(parts)
        assert torch.equal(_sharded.part_of(x, parts), own)
        same(_sharded.like(own * 3, parts), 3 * x)
        same(_sharded.place(parts, parts), x)


def matrices():
    """Returns how many whole matrices each rank worked on."""
    mine = []

    def work(own):
        mine.extend(own)
        return [x - x.mean((-2, -1), keepdim=True) * x.shape[-1] for x in own]

    many = [(x, parts) for x, parts in laid_out() if x.dim() == 2]
    for (x, parts), result in zip(many, _sharded.shared_out([parts for _, parts in many], work), strict=True):
        assert result.placements == parts.placements
        same(result, x - x.mean((-2, -1), keepdim=True) * x.shape[-1])
    return len(mine)


def bases():
    flat = [(x, parts) for x, parts in laid_out() if x.dim() == 2]
    gram = lambda x: x @ x.mT if x.shape[0] <= x.shape[1] else x.mT @ x  # noqa: E731
    for (x, _), basis in zip(flat, _sharded.shared_bases([parts for _, parts in flat], gram), strict=True):
        same(basis, gram(x))


def plain():
    xs = [numbers(*shape) for shape in SHAPES if len(shape) == 2]
    double = lambda own: [2 * x for x in own]  # noqa: E731
    for result, x in zip(_sharded.shared_out(xs, double, sync=True), xs, strict=True):
        same(result, 2 * x)
    for basis, x in zip(
        _sharded.shared_bases(xs, lambda x: x[: min(x.shape), : min(x.shape)], sync=True), xs, strict=True
    ):
        same(basis, x[: min(x.shape), : min(x.shape)])


def apart():
    """Plain tensors are each rank's own unless it says that they are the same on all."""
    mine = [numbers(3, 4 + n, seed=distributed.get_rank()) for n in range(2)]
    for x, basis in zip(mine, _sharded.shared_bases(mine, lambda y: y @ y.mT), strict=True):
        same(basis, x @ x.mT)
    for x, result in zip(mine, _sharded.shared_out(mine, lambda own: [2 * y for y in own]), strict=True):
        same(result, 2 * x)


def steps_of_stacks():
    """Scion's steps of kernels of one axis, whole and in parts, which it does not share out as stacks of matrices."""
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2))
    for way in placements(3):
        one, many = (
            laid.clone().requires_grad_() for x in [numbers(4, 2, 6)] for laid in (x, distribute_tensor(x, mesh, way))
        )
        one.grad, many.grad = numbers(4, 2, 6, seed=1), distribute_tensor(numbers(4, 2, 6, seed=1), mesh, way)
        for p in (one, many):
            nk.Scion([p], lr=0.1, ns_dtype=None).step()
        same(many.detach(), one.detach())


@pytest.mark.parametrize("task", [lengths, sizes, parts, bases, plain, apart, steps_of_stacks])
def test_ranks_find_what_one_process_does(task):
    each_rank(4, task)


def test_matrices_are_shared_out_and_each_is_worked_on_once_by_those_that_have_its_parts():
    counts = each_rank(4, matrices)
    assert sum(counts) == 36, "30, and 6 on both halves of a mesh that repeats them"
    assert max(counts) - min(counts) <= 3


def test_the_heaviest_matrix_is_worked_on_alone():
    shapes = [torch.Size(shape) for shape in [(4, 4), (2, 64, 3), (8, 100), (5,), (10, 10), ()]]
    assert _sharded.shares(shapes, 2) == [1, 1, 0, 1, 1, 1]
    assert _sharded.shares(shapes, 1) == [0] * 6
