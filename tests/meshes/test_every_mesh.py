"""Norms on eight processes in every way to shard two axes: ``pytest -m nightly``.

They are those of the table of docs/parallel.md that gather nothing. What they send there for an axis they send here
for each axis of the mesh that cuts it, at most, and keep the numbers of one process. Nothing is gathered but the
running moments of sharded channels.
"""

import itertools
import re
from pathlib import Path

import pytest
import torch

import normkit as nk
from normkit.contract.subject import build, outputs
from processes import far, group_of, laid, mesh_of

pytestmark = pytest.mark.nightly
PAGE = Path(__file__).parents[2] / "docs" / "parallel.md"
MESH = (4, 2)
LEADING, TRAILING = (9, 5, 7), (5, 7)  # uneven over 4 and 2; the last of 4 processes has none of 9
NEAR = 1e-10
OPS = {"sum": "all_reduce", "exchange": "all_to_all_single"}


def work(task, *arguments):
    return globals()[task](*arguments)


processes = group_of(MESH[0] * MESH[1], work)


def counted(cell):
    """What a cell of the table says is sent, forward and backward; None where it says more than sums and exchanges."""
    ways = []
    for words in cell.split(" / "):
        pairs = re.findall(r"(\d) (sum|exchange)s?", words)
        if words not in ("nothing", ", ".join(f"{n} {what}{'s' * (n > '1')}" for n, what in pairs)):
            return None
        ways.append({OPS[what]: int(n) for n, what in pairs})
    return ways if len(ways) == 2 else None


def allowed():
    """Names, what each axis of the table sends, and whether it is counted in training."""
    table = PAGE.read_text(encoding="utf-8").split("<!-- counts -->")[1].split("<!-- end of counts -->")[0]
    for line in table.splitlines():
        name, *cells = (cell.strip() for cell in line[1:-1].split("|"))
        known = len(cells) == 3 or name == "`batchnorm`"  # others over samples are counted with samples sharded alone
        if known and re.fullmatch(r"`[\w-]+`", name) and all(map(counted, cells)):
            yield name.strip("`"), [counted(cell) for cell in cells], len(cells) == 2


NORMS = {name: (counts, trained) for name, counts, trained in allowed()}


def places(pair):
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate() if axis is None else Shard(axis) for axis in pair]


def sent_by(mode):
    return {str(op).rsplit(".", 1)[-1]: count for op, count in mode.get_comm_counts().items()}


def small(name, trained):
    """The width of a small norm, and what it takes; groups are whole on each of eight processes."""
    taken = nk.card(name).signature.parameters
    if "num_groups" in taken:
        return 16, {"num_groups": 8}
    if "group_size" in taken and taken["group_size"].default is not None:
        return 16, {"group_size": 2}
    return (8 if trained else 10), {}


def norm(name, trained):
    """What a norm does in every pair of axes."""
    width, taken = small(name, trained)
    x = nk.card(name).draw(width, LEADING[0], leading=LEADING, trailing=TRAILING, dtype=torch.float64)[0]
    make, call = lambda: build(name, width, train=trained, **taken), lambda m, x: outputs(m(x))[0]
    return [(pair, *compared(make, call, x, pair)) for pair in pairs(x)]


def rotated():
    """What the norm of queries by head does that also turns them, in every pair of axes but the entries."""
    angles = nk.ops.rope.turns(torch.arange(LEADING[-1]), 8)
    x = nk.card("rmsnorm").draw(8, LEADING[0], leading=LEADING, dtype=torch.float64)[0]
    call = lambda m, x: m.norm_rotate(x, angles)  # noqa: E731
    return [(pair, *compared(lambda: build("rmsnorm", 8), call, x, pair)) for pair in pairs(x) if 3 not in pair]


def pairs(x):
    return itertools.product([None, *range(x.ndim)], repeat=2)


def compared(make, call, x, pair):
    """How far a norm on the mesh is from one process', what it sends there and back, and whether it keeps its place."""
    from torch.distributed.tensor import distribute_module
    from torch.distributed.tensor.debug import CommDebugMode

    mesh = mesh_of(MESH)
    one, many = make(), distribute_module(make(), mesh)
    whole, cut = x.clone().requires_grad_(), laid(x, mesh, places(pair)).requires_grad_()
    want = call(one, whole)
    grad = torch.sin(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
    want.backward(grad)
    with CommDebugMode() as forward:
        got = call(many, cut)
    with CommDebugMode() as backward:
        got.backward(laid(grad, mesh, places(pair)))
    off = [far(got.to_local(), laid(want.detach(), mesh, places(pair)).to_local())]
    off.append(far(cut.grad.to_local(), laid(whole.grad, mesh, places(pair)).to_local()))
    for a, b in zip(many.parameters(), one.parameters(), strict=True):
        off += [] if b.grad is None else [far(a.grad.full_tensor(), b.grad)]
    off += [far(a.full_tensor(), b) for a, b in zip(many.buffers(), one.buffers(), strict=True)]
    kept = list(got.placements) == list(cut.grad.placements) == places(pair)
    return max(off), sent_by(forward), sent_by(backward), kept


@pytest.mark.parametrize("name", NORMS)
def test_every_pair_of_axes_gives_the_numbers_of_one_process(name, processes):
    counts, trained = NORMS[name]
    vectors = nk.card(name).shape.axes[0] == "..."
    for results in processes.ask("norm", name, trained):
        for pair, off, forward, backward, kept in results:
            assert off < NEAR, pair
            assert kept, pair
            cut = [axis for axis in pair if axis is not None]
            if trained:
                columns, gathers = [0 for axis in cut if axis != 1], 2 * cut.count(1)  # of the running moments
            else:
                columns, gathers = [(2 if axis == 3 else min(axis, 1)) if vectors else min(axis, 2) for axis in cut], 0
            assert forward.pop("all_gather_into_tensor", 0) <= gathers, pair
            for way, sent in enumerate((forward, backward)):
                for op, count in sent.items():
                    assert count <= sum(counts[column][way].get(op, 0) for column in columns), (pair, op)


def test_every_pair_of_axes_turns_queries_where_they_are(processes):
    for results in processes.ask("rotated"):
        assert len(results) == 16
        for pair, off, forward, backward, kept in results:
            assert off < NEAR, pair
            assert kept, pair
            assert forward == backward == {}, pair


def test_the_page_counts_the_norms_that_are_held_to_it():
    kinds = {nk.card(name).shape.axes[0] for name in NORMS}
    assert kinds == {"...", "N"}
    assert len(NORMS) >= 35
