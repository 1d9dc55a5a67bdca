"""Points and graphs: the settings that no recording covers, and the edges, from the equations in float64."""

import itertools

import pytest
import torch

import normkit as nk

SETTINGS = list(itertools.product(("local", "global"), ("local", "global"), (1e-5, 0.0, 0.3)))


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def points(n=2, s=4, k=3, c=5):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, s, k, c), (n, s, c)))


def gains(module, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def deviation(values):
    values = values.flatten()
    return (((values - values.sum() / len(values)) ** 2).sum() / (len(values) - 1)) ** 0.5


def point_norm(grouped, anchors, weight, bias, mean, std, eps):
    y = torch.empty_like(grouped)
    for n in range(len(grouped)):
        d = grouped[n] - (anchors[n][:, None] if mean == "local" else anchors[n].sum() / anchors[n].numel())
        for s, c in itertools.product(range(d.shape[0]), range(d.shape[2])):
            sigma = deviation(d[s, :, c]) if std == "local" else deviation(d)
            y[n, s, :, c] = weight[c] * d[s, :, c] / (sigma + eps) + bias[c]
    return y


def reverse_point_norm(grouped, anchors, weight, bias, mean, std, eps):
    y = torch.empty_like(anchors)
    for n in range(len(anchors)):
        mu = grouped[n].sum(1) / grouped.shape[2] if mean == "local" else grouped[n].sum() / grouped[n].numel()
        d = anchors[n] - mu
        sigma = (abs(d) + 1e-5) ** 0.5 if std == "local" else deviation(d)
        y[n] = weight * d / (sigma + eps) + bias
    return y


@pytest.mark.parametrize("mean, std, eps", SETTINGS)
def test_point_norms_follow_their_equations(mean, std, eps):
    grouped, anchors = points()
    for name, formula in (("point-norm", point_norm), ("reverse-point-norm", reverse_point_norm)):
        module = gains(nk.create(name, 5, mean=mean, std=std, eps=eps).double())
        close(module(grouped, anchors), formula(grouped, anchors, module.weight, module.bias, mean, std, eps))


@pytest.mark.parametrize("mean, std, eps", SETTINGS)
def test_the_dual_norm_reads_the_normalized_neighbours_and_the_raw_points(mean, std, eps):
    grouped, anchors = points()
    module = gains(nk.create("dualnorm", 5, mean=mean, std=std, eps=eps).double())
    neighbours = point_norm(grouped, anchors, module.weight, module.bias, mean, std, eps)
    after = reverse_point_norm(neighbours, anchors, module.reverse_weight, module.reverse_bias, mean, std, eps)
    close(module(grouped, anchors), (neighbours, after))


def test_a_local_reverse_norm_has_a_finite_slope_at_the_mean():
    anchors = torch.zeros(1, 1, 2, dtype=torch.float64, requires_grad=True)
    module = nk.create("reverse-point-norm", 2, std="local").double()
    module(torch.zeros(1, 1, 3, 2, dtype=torch.float64), anchors).sum().backward()
    close(anchors.grad, torch.full_like(anchors, 1 / (1e-5**0.5 + 1e-5)))


@pytest.mark.parametrize(
    "name, std, shape", [("point-norm", "local", (2, 4, 1, 5)), ("reverse-point-norm", "global", (2, 1, 3, 1))]
)
def test_a_deviation_of_one_value_is_refused(name, std, shape):
    module = nk.create(name, shape[-1], std=std)
    with pytest.raises(ValueError, match="at least two"):
        module(torch.randn(shape), torch.randn(shape[0], shape[1], shape[3]))


def test_anchors_of_another_set_are_named():
    with pytest.raises(ValueError, match=r"anchors must have shape \(2, 4, 5\)"):
        nk.create("point-norm", 5)(torch.randn(2, 4, 3, 5), torch.randn(2, 3, 5))


# messages


def test_a_message_takes_the_length_of_its_node():
    x, message = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    module = nk.create("msgnorm").double()
    y = module(x, message)
    close(y.square().sum(-1).sqrt(), x.square().sum(-1).sqrt())
    close(y / message, (y / message)[:, :1].expand(-1, 4))


def test_messages_of_zero_and_nodes_of_zero():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    message = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    y = nk.create("msgnorm").double()(x, message)
    close(y, torch.zeros_like(y))
    y.sum().backward()
    close(message.grad[0], torch.full((2,), 5 / 1e-12, dtype=torch.float64))
    close(x.grad[1], torch.zeros(2, dtype=torch.float64))


def test_the_floor_is_a_maximum_and_not_a_sum():
    module = nk.create("msgnorm").double()
    x = torch.ones(1, 1, dtype=torch.float64)
    close(module(x, x * 1e-11), x)
    close(module(x, x * 1e-13), x * 0.1)


def test_the_scale_is_in_the_state_either_way():
    for learnable in (False, True):
        module = nk.create("msgnorm", learnable=learnable)
        assert list(module.state_dict()) == ["weight"]
        assert module.weight.requires_grad is learnable


# sampled subgraphs


def counts():
    target = torch.tensor([0, 0, 1, 2, 3, 3])
    edge_count = torch.tensor([2, 0, 4, 0, 5, 1])
    node_count = torch.tensor([6, 2, 0, 30000, 3])
    train, evaluate = torch.tensor([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]).bool()
    return target, edge_count, node_count, train, evaluate


@pytest.mark.parametrize("subgraphs", [7, torch.tensor(7), torch.tensor([7.0], dtype=torch.float64)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_counts_of_zero_and_nodes_in_no_split(dtype, subgraphs):
    torch.set_default_dtype(torch.float64)
    try:
        target, edge_count, node_count, train, evaluate = counts()
        module = nk.create("graphsaint-norm", 5)
        aggregator, loss = module(target, edge_count.to(dtype), node_count.to(dtype), subgraphs, train, evaluate)
        close(aggregator, torch.tensor([3, 1e4, 0.5, 0.1, 6000, 1e4]))
        close(loss, torch.tensor([7 / 6 / 2, 0, 7 / 0.1 / 2, 30000, 3]))
    finally:
        torch.set_default_dtype(torch.float32)


def test_no_edges_and_no_training_nodes():
    none = torch.zeros(5, dtype=torch.bool)
    empty = torch.zeros(0)
    aggregator, loss = nk.create("graphsaint-norm", 5)(empty.long(), empty, torch.arange(5.0), 3, none, none)
    assert aggregator.shape == (0,)
    close(loss, torch.tensor([0.1, 1, 2, 3, 4]))


def test_aggregation_divides_by_the_degree_in_the_full_graph():
    x = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
    target, source = torch.tensor([0, 0, 1]), torch.tensor([1, 3, 0])
    coefficient, degree = torch.tensor([2.0, 0.5, 3.0], dtype=torch.float64), torch.tensor([4, 2, 5, 0])
    y = nk.create("graphsaint-norm", 9).aggregate(x, target, source, coefficient, degree)
    want = torch.stack([(2 * x[1] + 0.5 * x[3]) / 4, 3 * x[0] / 2, x[2] * 0, x[3] * 0])
    close(y, want)
    half = nk.create("graphsaint-norm", 9).aggregate(x.half(), target, source, coefficient.float(), degree)
    close(half, want.half())


def test_the_subgraph_loss_is_a_sum():
    losses, coefficient = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 0.0, 2.0])
    close(nk.create("graphsaint-norm", 9).weighted_loss(losses, coefficient), torch.tensor(8.5))


def test_normalized_aggregation_is_unbiased():
    """Over random subgraphs, the mean of the normalized aggregation is the full graph's; without it is not."""
    generator = torch.Generator().manual_seed(0)
    nodes, rounds = 12, 4000
    adjacency = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64) < 0.4
    target, source = adjacency.nonzero(as_tuple=True)
    degree, x = adjacency.sum(1), torch.randn(nodes, 3, generator=generator, dtype=torch.float64)
    popular = torch.linspace(0.2, 0.9, nodes, dtype=torch.float64)
    drawn = torch.rand(rounds, nodes, generator=generator, dtype=torch.float64) < popular
    edges = drawn[:, target] & drawn[:, source]
    module = nk.create("graphsaint-norm", nodes)
    everyone, nobody = torch.ones(nodes, dtype=torch.bool), torch.zeros(nodes, dtype=torch.bool)
    given = (target, edges.sum(0).double(), drawn.sum(0).double(), rounds, everyone, nobody)
    aggregator, _ = module(*given)
    full = module.aggregate(x, target, source, torch.ones(len(target)), degree)

    def mean_over_subgraphs(coefficient):
        sums = sum(module.aggregate(x, target[e], source[e], coefficient[e], degree) for e in edges)
        return sums / drawn.sum(0).unsqueeze(-1)

    close(mean_over_subgraphs(aggregator), full)
    assert (mean_over_subgraphs(torch.ones(len(target))) - full).abs().max() > 0.1


def test_an_edge_to_a_node_that_is_not_there_is_named():
    target, edge_count, node_count, train, evaluate = counts()
    with pytest.raises(ValueError, match=r"edge_target must lie in 0 .. 4"):
        nk.create("graphsaint-norm", 5)(target + 2, edge_count, node_count, 7, train, evaluate)
    with pytest.raises(TypeError, match="train_mask must be a boolean"):
        nk.create("graphsaint-norm", 5)(target, edge_count, node_count, 7, train.long(), evaluate)
