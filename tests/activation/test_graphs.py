"""Norms of graphs: the equations of torch_geometric, graph by graph, in float64."""

import pytest
import torch
from torch.nn import functional as F

import normkit as nk

D = torch.float64
BATCH = torch.tensor([0, 2, 0, 1, 2, 2, 0, 4])  # no node is of graph 3


def rand(*shape, seed=0):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def moved(module):
    for index, parameter in enumerate(module.parameters()):
        parameter.data = parameter.data + 0.3 * rand(*parameter.shape, seed=index)
    return module


def graph_norm(m, x):
    v = x - m.mean_scale * x.mean(0)
    return m.weight * v / ((v**2).mean(0) + 1e-5).sqrt() + m.bias


def graph_layernorm(m, x):
    return m.weight * (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() + m.bias


def instance(m, x):
    return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()


def together(m, x):
    v = x - x.mean(0)
    return m.scale * v / (1e-5 + v.pow(2).sum(-1).mean()).sqrt()


def each(m, x):
    v = x - x.mean(0)
    return m.scale * v / (1e-5 + v.pow(2).sum(-1, keepdim=True)).sqrt()


def then_center(m, x):
    return m.scale * x / (1e-5 + x.pow(2).sum(-1, keepdim=True)).sqrt() - x.mean(0)


CASES = {
    "graph-norm": (lambda: nk.GraphNorm(3), graph_norm),
    "graph-instancenorm": (lambda: nk.create("graph-instancenorm", 3), instance),
    "graph-layernorm": (lambda: nk.GraphLayerNorm(3), graph_layernorm),
    "pair-norm": (lambda: nk.PairNorm(scale=2.0), together),
    "pairnorm-si": (lambda: nk.create("pairnorm-si", scale=2.0), each),
    "pairnorm-scs": (lambda: nk.create("pairnorm-scs", scale=2.0), then_center),
    "graph-size-norm": (lambda: nk.GraphSizeNorm(), lambda m, x: x / len(x) ** 0.5),
    "mean-subtraction-norm": (lambda: nk.MeanSubtractionNorm(), lambda m, x: x - x.mean(0)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_graph_is_normalized_by_itself(name):
    make, formula = CASES[name]
    module, x = moved(make().double()), rand(len(BATCH), 3)
    want = torch.empty_like(x)
    for graph in BATCH.unique():
        want[graph == BATCH] = formula(module, x[graph == BATCH])
    torch.testing.assert_close(module(x, BATCH), want)
    torch.testing.assert_close(module(x), formula(module, x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["pair-norm", "graph-norm", "graph-layernorm"])
def test_a_graph_with_nan_is_not_zero_but_nan_as_by_the_equation(name, bad):
    """One bad feature of one node: pair-norm and graph-layernorm divide all of its graph by it, and by no other's."""
    norm, x = nk.create(name, 3).double() if name != "pair-norm" else nk.create(name), rand(6, 3)
    x[1, 2] = bad
    y = norm(x, torch.tensor([0, 0, 0, 1, 1, 1]))
    spoilt = y[:3, 2] if name == "graph-norm" else y[:3]
    assert spoilt.isnan().all()
    assert y[3:].isfinite().all()


def test_a_compiled_graph_norm_takes_any_batch():
    module, x = moved(nk.GraphNorm(3, dtype=D)), rand(8, 3)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, BATCH), module(x, BATCH))


def test_a_batch_of_the_wrong_kind_is_named():
    with pytest.raises(ValueError, match="batch must have shape"):
        nk.GraphNorm(3)(torch.randn(4, 3), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(TypeError, match="batch must be an int64"):
        nk.GraphNorm(3)(torch.randn(4, 3), torch.zeros(4))
    with pytest.raises(ValueError, match="batch must not be negative"):
        nk.GraphNorm(3)(torch.randn(4, 3), torch.tensor([0, -1, 0, 0]))


def test_differentiable_group_norm():
    module, x = moved(nk.create("diff-groupnorm", 3, num_groups=4, balance=0.2, dtype=D)), rand(7, 3)
    s = (x @ module.lin.weight.T).softmax(-1)
    parts = torch.cat([s[:, i : i + 1] * x for i in range(4)], 1)
    n = F.batch_norm(parts, None, None, module.norm.weight, module.norm.bias, training=True)
    torch.testing.assert_close(module(x), x + 0.2 * sum(n.split(3, 1)))
