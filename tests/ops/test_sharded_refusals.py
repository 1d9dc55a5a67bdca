"""Norms that cannot take a DTensor as it is cut say so by name; those of whole samples work on a process' own."""

import pytest

from normkit.contract.subject import build, draw, outputs
from processes import gap, group_of, laid, mesh_of


def work(name, axis, all_distributed=False):
    """How far a norm of a DTensor is from that of the whole, or what it says."""
    from torch.distributed.tensor import Replicate, Shard, distribute_module

    mesh = mesh_of((2,))
    x, *others = draw(name)
    beside = [laid(other, mesh, [Replicate()]) if all_distributed else other for other in others]
    module = distribute_module(build(name), mesh)
    cut = laid(x, mesh, [Shard(axis)]).requires_grad_()
    try:
        y = outputs(module(cut, *beside))[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    whole = x.clone().requires_grad_()
    want = outputs(build(name)(whole, *others))[0]
    want.sin().sum().backward()
    y.sin().sum().backward()
    assert list(y.placements) == list(cut.placements)
    return max(gap(y, want), gap(cut.grad, whole.grad))


processes = group_of(2, work)
GRAPHS = ["graph-norm", "graph-layernorm", "graph-size-norm", "mean-subtraction-norm", "pair-norm"]
REFUSED = [(name, axis) for name in GRAPHS for axis in (0, 1)] + [("stain-norm", 2), ("cumulative-groupnorm", 1)]


@pytest.mark.parametrize("name, axis", REFUSED)
def test_what_cannot_be_cut_is_refused_by_name(name, axis, processes):
    for refusal in processes.ask(name, axis):
        assert refusal.startswith("NotImplementedError: "), refusal
        assert f": x is a DTensor placed as (Shard(dim={axis}),) on the mesh 2 [0, 1]" in refusal
        assert "x.full_tensor()" in refusal
        assert ("distribute those too" in refusal) == (name in GRAPHS)
        assert ("whose samples alone are cut" in refusal) == (name not in GRAPHS)


@pytest.mark.parametrize("axis", [0, 1])
def test_graphs_whose_index_is_distributed_too_are_normalized(axis, processes):
    assert max(processes.ask("graph-norm", axis, True)) < 1e-10


@pytest.mark.parametrize("name", ["stain-norm", "cumulative-groupnorm"])
def test_whole_samples_are_normalized_where_they_are(name, processes):
    assert max(processes.ask(name, 0)) < 1e-10
