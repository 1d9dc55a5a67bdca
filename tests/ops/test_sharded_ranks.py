"""Norms of DTensors on three ranks that are threads of this process: numbers and gradients are those of one process."""

import re
from pathlib import Path

import pytest
import torch
from torch import distributed

import normkit as nk
from normkit.contract.subject import build, outputs
from normkit.statistics import join_products, moments, sum_over_processes
from processes import far, laid
from threads import each_rank

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch has no torch.distributed")
PAGE = Path(__file__).parents[2] / "docs" / "parallel.md"
COUNT, WIDTH = 3, 12  # groups are whole on each rank
LEADING, TRAILING = (7, 5, 4), (5, 4)  # uneven over three


def tabled():
    """The norms of docs/parallel.md, the columns that say what is sharded, and whether they are in training."""
    table = PAGE.read_text(encoding="utf-8").split("<!-- counts -->")[1].split("<!-- end of counts -->")[0]
    for line in table.splitlines():
        name, *cells = (cell.strip() for cell in line[1:-1].split("|"))
        if re.fullmatch(r"`[\w-]+`", name):
            trained = len(cells) == 2
            wanted = cells[1:] if trained else cells
            yield (
                name.strip("`"),
                [axis for axis, cell in enumerate(wanted) if re.match(r"nothing|\d sum", cell)],
                trained,
            )


OF_STEPS = {"membrane-batchnorm"}  # its first axis is time, whose samples lie in the second
NORMS = {name: (axes, trained) for name, axes, trained in tabled() if axes and name not in OF_STEPS}


def compared(one, many, x, axis):
    """How far a norm of a DTensor, of which an axis is cut, is from that of the whole."""
    from torch.distributed.tensor import Shard, distribute_module, init_device_mesh

    mesh = init_device_mesh("cpu", (COUNT,))
    rank = distributed.get_rank()
    parted = lambda x: laid(x, mesh, [Shard(axis)])  # noqa: E731
    norm, whole, cut = one[rank], x.clone().requires_grad_(), parted(x).requires_grad_()
    want = outputs(norm(whole))[0]
    grad = torch.sin(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
    want.backward(grad)
    apart = distribute_module(many[rank], mesh)
    got = outputs(apart(cut))[0]
    got.backward(parted(grad))
    assert list(got.placements) == list(cut.grad.placements) == [Shard(axis)]
    off = [
        far(got.to_local(), parted(want.detach()).to_local()),
        far(cut.grad.to_local(), parted(whole.grad).to_local()),
    ]
    named = {**dict(norm.named_parameters()), **dict(norm.named_buffers())}
    for name, ours in {**dict(apart.named_parameters()), **dict(apart.named_buffers())}.items():
        pair = (ours.grad, named[name].grad) if ours.requires_grad else (ours, named[name])
        off += [] if pair[1] is None else [far(pair[0].full_tensor(), pair[1])]
    return max(off)


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_of_parts_is_that_of_the_whole(name):
    axes, trained = NORMS[name]
    taken = nk.card(name).signature.parameters
    options = {"num_groups": 2 if trained else 3} if "num_groups" in taken else {}
    options |= {"group_size": 2} if "group_size" in taken and taken["group_size"].default is not None else {}
    x = nk.card(name).draw(WIDTH, LEADING[0], leading=LEADING, trailing=TRAILING, dtype=torch.float64)[0]
    vectors = nk.card(name).shape.axes[0] == "..."
    where = [0, 1, x.dim() - 1] if vectors else [0, 1, 2]
    for axis in [0] if trained else [where[at] for at in axes]:
        one, many = ([build(name, WIDTH, train=trained, **options) for _ in range(COUNT)] for _ in range(2))
        assert max(each_rank(COUNT, compared, one, many, x, axis)) < 1e-10, axis


@pytest.mark.parametrize("axis", [1, 2])
def test_a_context_that_is_the_mean_of_parts_is_that_of_the_whole(axis):
    x = torch.randn(2, WIDTH, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, many = ([build("gcblock", WIDTH, ratio=0.5, pooling="avg") for _ in range(COUNT)] for _ in range(2))
    assert max(each_rank(COUNT, compared, one, many, x, axis)) < 1e-10


def summed():
    """A sum over all ranks, and over groups of one and of all that follow one another, with its gradient."""
    rank, everyone = distributed.get_rank(), distributed.group.WORLD
    alone = [distributed.new_group([member]) for member in range(distributed.get_world_size())][rank]
    for group in (None, everyone, (alone, everyone)):
        x = torch.tensor([1.0, float(rank)], requires_grad=True)
        total = sum_over_processes(x, group)
        (rank * total).sum().backward()
        yield total.tolist(), x.grad.tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_a_sum_over_processes_is_that_of_all_ranks_forward_and_backward(count):
    ranks = float(sum(range(count)))
    for results in each_rank(count, lambda: list(summed())):
        assert results == [([float(count), ranks], [ranks, ranks])] * 3


def of_nothing():
    axes, count = (0, 2), torch.zeros(())
    alone = join_products(torch.zeros(3), torch.zeros(1, 3, 0), torch.zeros(1, 3, 3), count, None)
    return [*moments(torch.zeros(0, 3, 4), axes, sync=True), *alone]


def test_ranks_that_all_have_nothing_join_it_to_zeros():
    for results in each_rank(COUNT, of_nothing):
        assert len(results) == 6
        assert not any(result.any() for result in results), results
