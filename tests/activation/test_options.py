"""Layers and searches: the options that no recording covers, from the equations in float64."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import normkit as nk

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def moved(module):
    for index, parameter in enumerate(module.parameters()):
        parameter.data = parameter.data + 0.3 * rand(*parameter.shape, seed=index)
    return module


COMBINED = {
    "sum": lambda u, w: u + w,
    "prod": lambda u, w: u * w,
    "sum_prod": lambda u, w: u + w + u * w,
    "cubic1": lambda u, w: u**3 + u * w * w + u * u * w + w**3,
    "cubic2": lambda u, w: u**3 * w**3,
}


@pytest.mark.parametrize("combine", COMBINED)
def test_af_kan_over_neighbouring_features(combine):
    layer = moved(nk.create("af-kan", 3, 2, method="spatial", norm="none", combine=combine, normalize=False, dtype=D))
    x = rand(4, 3)
    f = COMBINED[combine](*(F.silu(v) for v in (x[..., None] - layer.low, layer.high - x[..., None])))
    padded = F.pad(f, (0, 0, 1, 1))
    scores = sum(padded[:, i : i + 3] * layer.mix.weight[:, 0, i] for i in range(3)) + layer.mix.bias
    share = (scores / layer.temperature.clamp(min=1)).exp()
    share = share / share.sum(-1, keepdim=True)
    torch.testing.assert_close(layer.features(x), f)
    torch.testing.assert_close(layer(x), F.silu((f * share).sum(-1)) @ layer.weight.T)


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "selu", "tanh", "relu", "softplus", "sigmoid"])
def test_af_kan_takes_the_authors_activations(name):
    layer, x = nk.create("af-kan", 3, 2, activation=name, combine="prod", normalize=False, dtype=D), rand(4, 3)
    act = getattr(F, name)
    torch.testing.assert_close(layer.features(x), act(x[..., None] - layer.low) * act(layer.high - x[..., None]))


def test_a_control_signal_is_scaled_by_the_percentiles_of_the_whole():
    signal = rand(10, 3, 2)
    got = nk.create("global-control-norm", low=3, high=70.5, stride=4)(signal)
    kept = signal[:9].numpy()
    low, high = np.percentile(kept, [3, 70.5])
    np.testing.assert_allclose(got.numpy(), (high - kept.clip(low, high)) / (high - low))
    assert nk.create("global-control-norm").clips(signal).shape == (0, 81, 3, 2)


@pytest.mark.parametrize(
    "exponent, q, pool",
    [
        (1, 0.0, lambda v: v.abs().sum(0)),
        (1, 1.0, lambda v: v.abs().mean(0)),
        (2, 0.0, lambda v: v.norm(dim=0)),
        (300, 0.0, lambda v: v.abs().amax(0)),
    ],
)
def test_gnp_contains_the_usual_poolings(exponent, q, pool):
    module, x, index = nk.create("gnp", 4, eps=0.0, dtype=D), rand(7, 4), torch.tensor([0, 2, 1, 2, 2, 0, 1])
    module.p.data[:] = np.log(np.expm1(exponent)) if exponent < 50 else exponent
    module.q.data[:] = q
    want = torch.stack([pool(x[index == i]) for i in range(3)])
    torch.testing.assert_close(module(x, index)[:, :2], want[:, :2], rtol=0.01 if exponent > 50 else 1e-10, atol=1e-10)
    if exponent == 300:
        least = torch.stack([x[index == i].abs().amin(0) for i in range(3)])
        torch.testing.assert_close(module(x, index)[:, 2:], least[:, 2:], rtol=0.01, atol=0)


def test_gnp_gives_an_empty_set_zero_and_no_gradient():
    module, x = nk.create("gnp", 4, sets=3, dtype=D), rand(5, 4).requires_grad_()
    y = module(x, torch.tensor([0, 0, 2, 2, 2]))
    y.sum().backward()
    assert not y[1].any()
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(module.p.grad).all()


@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_graph_transformer_layer_on_a_graph_written_as_a_matrix(norm):
    layer = moved(nk.create("graph-transformer-layer", 6, heads=2, norm=norm, bias=True, dtype=D))
    x, edges = rand(4, 6), torch.tensor([[0, 1, 2, 3, 1, 0], [0, 1, 2, 3, 0, 3]])
    joined = torch.zeros(4, 4, dtype=torch.bool)
    joined[edges[1], edges[0]] = True  # target, source
    q, k, v = (part(x).view(4, 2, 3).transpose(0, 1) for part in (layer.query, layer.key, layer.value))
    w = torch.where(joined, (q @ k.mT / 3**0.5).clamp(-5, 5).exp(), 0)
    a = (w @ v / w.sum(-1, keepdim=True)).transpose(0, 1).reshape(4, 6)
    x = layer.norm1(x + layer.out(a))
    want = layer.norm2(x + layer.down(torch.relu(layer.up(x))))
    torch.testing.assert_close(layer(rand(4, 6), edges), want)


def test_edges_are_asked_for_or_refused():
    x, edges = rand(3, 4), torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match="edge_features is missing"):
        nk.create("graph-transformer-layer", 4, heads=2, edges=True, dtype=D)(x, edges)
    with pytest.raises(ValueError, match="edge_features is given"):
        nk.create("graph-transformer-layer", 4, heads=2, dtype=D)(x, edges, rand(5, 4))
    with pytest.raises(ValueError, match=r"edge_features must have shape \(5, 4\), but its shape is \(1, 4\)"):
        nk.create("graph-transformer-layer", 4, heads=2, edges=True, dtype=D)(x, edges, rand(1, 4))


@pytest.mark.parametrize("placement", ["none", "inside", "outside", "both"])
def test_instance_norm_stands_where_it_is_placed(placement):
    branch, identity = rand(3, 4, 2, 3), rand(3, 4, 2, 3, seed=1)
    y = F.instance_norm(branch) if placement in ("inside", "both") else F.batch_norm(branch, None, None, training=True)
    y = y + identity
    y = torch.relu(F.instance_norm(y) if placement in ("outside", "both") else y)
    torch.testing.assert_close(
        nk.create("instance-norm-placement", 4, placement=placement, dtype=D)(branch, identity), y
    )


def test_a_search_among_modules_learns_and_chooses():
    torch.manual_seed(0)
    modules = [nk.create("instance-norm-placement", 3, placement=p) for p in ("none", "inside")]
    search = nk.PlacementSearch.among(modules)
    search(torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4), temperature=2.0).sum().backward()
    assert search.search.weight.grad.abs().min() > 0
    search.search.weight.data[1] = 2.0
    assert search.chosen() is modules[1]


@pytest.mark.parametrize("activation", ["sigmoid", "none"])
def test_low_rank_attention_token_by_token(activation):
    module, x = moved(nk.create("low-rank-attention", 4, 3, activation=activation, dtype=D)), rand(2, 5, 4)
    act = torch.sigmoid if activation == "sigmoid" else lambda s: s
    scores = torch.stack([act((x.mean(1) @ module.context) * (x[:, t] @ module.token)) for t in range(5)], -1)
    weights = (scores / scores.norm(dim=1, keepdim=True)).softmax(-1)
    torch.testing.assert_close(module.attend(x), weights)
    torch.testing.assert_close(module(x), torch.einsum("nht,ntc->nhc", weights, x))
