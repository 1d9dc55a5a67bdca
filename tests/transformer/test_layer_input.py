"""Inputs that each layer has by itself, keys and values that layers share, and hidden features cut to zero."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit.ops.rope import Frequencies

TOKENS = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(0))
SIZES = {"vocab": 11, "dim": 8, "depth": 4, "heads": 2, "hidden": 12, "norm": "rmsnorm"}
SHARING = [{"window": 3}, {}, {"keys_of": 0, "window": 3}, {"keys_of": 1}]
OWN = {"layer_inputs": 5, "layer_vocab": 9, "each": SHARING, "value_norm": "rmsnorm:affine=False", "kv_heads": 1}


def shaken(**arguments):
    torch.manual_seed(0)
    model = nk.Decoder(**SIZES, **arguments).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def rms(x, weight=None):
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


@pytest.mark.parametrize("placement", ["peri-norm", "laurel:rank=3", "altup:streams=3,rank=2"])
def test_a_cache_one_graph_and_checkpoints_change_nothing(placement):
    model = shaken(placement=placement, **OWN)
    want, cache = model(TOKENS), model.empty_cache()
    torch.testing.assert_close(torch.cat([model(t, cache=cache) for t in TOKENS.split([3, 1, 1, 2], 1)], 1), want)
    assert torch.equal(model.generate(TOKENS, 3, temperature=0), model.generate(TOKENS, 3, temperature=0, cached=False))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(TOKENS), want)
    torch.testing.assert_close(torch.export.export(model, (TOKENS,)).module()(TOKENS), want)
    want.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient.abs().max() > 0 for gradient in gradients.values())
    model.zero_grad()
    for layer in model.layers:
        plain = layer.forward
        layer.forward = lambda *given, plain=plain, **named: checkpoint(plain, *given, use_reentrant=False, **named)
    model(TOKENS).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])


def test_the_inputs_of_layers_are_their_equation_and_act_after_the_feedforward():
    model = shaken(placement="peri-norm", layer_inputs=5, layer_vocab=9, activation="swiglu", final_norm=False)
    own, e = model.layer_inputs, model.embedding_norm(model.embedding(TOKENS))
    table = own.embedding.weight.view(9, 4, 5)[TOKENS * (TOKENS < 9)] * math.sqrt(5)
    made = rms((e @ own.projection.weight.T / math.sqrt(8)).view(2, 7, 4, 5), own.norm.weight)
    inputs = ((made + table) / math.sqrt(2)).unbind(2)
    x, angles = e, model._angles(torch.arange(7))
    for layer, given in zip(model.layers, inputs, strict=True):
        x = x + layer.attention_output_norm(layer.attention(layer.attention_norm(x), angles=angles))
        x = x + layer.feedforward_output_norm(layer.feedforward(layer.feedforward_norm(x)))
        made = F.silu(x @ layer.layer_input.gate.weight.T) * given
        x = x + layer.layer_input_output_norm(made @ layer.layer_input.output.weight.T)
    torch.testing.assert_close(model(TOKENS), x @ model.embedding.weight.T)
    features = nk.Encoder(**SIZES | {"vocab": None}, placement="peri-norm", layer_inputs=5).double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    entering = features.embedding_norm(x)
    want = rms((entering @ features.layer_inputs.projection.weight.T / math.sqrt(8)).view(2, 7, 4, 5))
    torch.testing.assert_close(torch.stack(features.layer_inputs(entering, x), 2), want)


def test_the_matrix_of_the_inputs_of_layers_is_drawn_as_wide_as_the_others():
    torch.manual_seed(0)
    model = nk.Decoder(**SIZES | {"dim": 64}, placement="peri-norm", layer_inputs=32, std=0.3)
    assert model.layer_inputs.projection.weight.std().item() == pytest.approx(0.3, rel=0.05)


def test_layers_that_share_read_the_keys_and_values_of_the_one_they_name():
    model = shaken(placement="pre-norm", each=SHARING)
    assert not any(hasattr(model.layers[i].attention, name) for i in (2, 3) for name in ("key", "value"))
    other = shaken(placement="pre-norm")
    x, angles, kept, at = model.embedding(TOKENS), model._angles(torch.arange(7)), {}, torch.arange(7)
    for index, layer in enumerate(model.layers):
        attention, lender = layer.attention, model.layers[index % 2].attention
        h = layer.attention_norm(x)
        read = kept.setdefault(index % 2, h)
        q = attention._heads("query", h, angles)
        k, v = lender._heads("key", read, angles), lender._heads("value", read)
        near = (at[:, None] - at >= 0) & (at[:, None] - at < (7 if index % 2 else 3))
        y = F.scaled_dot_product_attention(q, k, v, near)
        x = x + attention.output(y.transpose(1, 2).flatten(2))
        x = x + layer.feedforward(layer.feedforward_norm(x))
    torch.testing.assert_close(model(TOKENS), model.norm(x) @ model.embedding.weight.T)
    assert sum(p.numel() for p in other.parameters()) - sum(p.numel() for p in model.parameters()) == 4 * 64


def test_what_stays_of_a_normal_sample_is_the_share_that_was_asked_for():
    torch.manual_seed(0)
    made = nk.TransformerLayer(
        placement="pre-norm", dim=4, heads=1, hidden=20000, activation="swiglu", feedforward_options={"sparsity": 0.95}
    ).feedforward
    x = torch.randn(1, 4)
    u, gate = made.up(x).double().chunk(2, -1)
    mean, std = gate.mean(), gate.std(correction=0)
    above = F.relu(gate - mean - 1.6448536269514722 * std)
    want = (F.silu(above) * u) @ made.down.weight.double().T
    torch.testing.assert_close(made(x).double(), want, rtol=1e-4, atol=1e-6)
    seen = []
    nn.Module.register_forward_pre_hook(made.down, lambda _, given: seen.append(given[0]))
    made(torch.randn(8, 4))
    gates = torch.distributions.Normal(0, 1).sample((20000,))
    plain = nk.TransformerLayer(
        placement="pre-norm", dim=1, heads=1, hidden=20000, activation="relu", feedforward_options={"sparsity": 0.95}
    ).feedforward
    with torch.no_grad():
        plain.up.weight.copy_(gates[:, None])
    nn.Module.register_forward_pre_hook(plain.down, lambda _, given: seen.append(given[0]))
    plain(torch.ones(1, 1))
    assert abs((seen[-1] > 0).double().mean().item() - 0.05) < 0.005


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"each": [{"keys_of": 0}]}, "keys_of=0 of layer 0 must name an earlier layer that projects keys and values"),
        ({"each": [{}, {"keys_of": 3}]}, "keys_of=3 of layer 1 must name an earlier layer"),
        ({"each": [{}, {"keys_of": 0}, {"keys_of": 1}, {}]}, "keys_of=1 of layer 2 must name an earlier layer that"),
        ({"each": [{"kv_heads": 1}, {"keys_of": 0}]}, "keys_of=0 of layer 1 must .* with kv_heads=2 and head_dim=4"),
        ({"core": "lightning", "each": [{}, {"keys_of": 0}]}, "'lightning' takes no keys of an earlier layer"),
        (
            {"each": [{"core": "lightning"}, {"keys_of": 0}]},
            "'lightning' takes no queries of .* keys_of=0 of layer 1 wants",
        ),
        ({"each": [{"core": "rnope"}, {"keys_of": 0}]}, "'rnope' takes no queries of another layer, .*: .*softmax"),
        (
            {"each": [{"rotary": "pairs"}, {"keys_of": 0}]},
            "turns keys by rotary='halves', 4 features, not by rotary='pairs', 4 features",
        ),
        (
            {"each": [{"core": "qkv-norm:rope_base=10.0"}, {"keys_of": 0}]},
            "keys_of=0 of layer 1 must name an earlier layer that turns keys by rotary='halves', 4 features, not by",
        ),
        (
            {"each": [{}, {"core": "qkv-norm:rope_base=10.0", "keys_of": 0}]},
            "turns keys by its core, not by rotary='halves', 4 features",
        ),
        (
            {"frequencies": [Frequencies((1.0,)), Frequencies((1.0, 0.1))], "each": [{}, {"keys_of": 0}]},
            r"4 features, frequencies\[1\], not by rotary='halves', 4 features, frequencies\[0\]",
        ),
        ({"placement": "ngpt", "each": [{}, {"keys_of": 0}]}, "'ngpt' scales each query with its key; keys_of must"),
        ({"layer_inputs": 5}, "placement 'pre-norm' takes no layer_inputs; those that do: .*altup.*peri-norm"),
        ({"layer_inputs": 0, "placement": "peri-norm"}, "layer_inputs must be at least 1"),
        ({"layer_inputs": 3, "placement": "peri-norm", "layer_vocab": 0}, "layer_vocab must be at least 1"),
        ({"layer_vocab": 3}, "layer_vocab=3 is of layer_inputs, which are None"),
        ({"feedforward_options": {"sparsity": 1.0}}, "sparsity must lie in"),
    ],
)
def test_mistakes_are_named(arguments, words):
    settings = SIZES | {"placement": "pre-norm"} | arguments
    with pytest.raises(ValueError, match=words):
        nk.Decoder(**{k: v for k, v in settings.items() if (k, settings["placement"]) != ("norm", "ngpt")})


@pytest.mark.parametrize(
    "arguments",
    [
        {"each": [{"rotary": "pairs"}, {"rotary": "pairs", "keys_of": 0}]},
        {"each": [{"rotary_dim": 2}, {"rotary_dim": 2, "keys_of": 0}]},
        {"frequencies": [Frequencies((1.0,)), Frequencies((1.0,))], "each": [{}, {"keys_of": 0}]},
        {"frequencies": [Frequencies((1.0,)), Frequencies((0.3,))], "each": [{}, {}, {"keys_of": 0}, {"keys_of": 1}]},
    ],
)
def test_layers_that_share_see_how_far_a_key_is_and_not_where(arguments):
    model, at = shaken(placement="pre-norm", **arguments), torch.arange(7).expand(2, 7)
    torch.testing.assert_close(model(TOKENS, positions=at + 5), model(TOKENS, positions=at), rtol=1e-5, atol=1e-5)
    assert (model(TOKENS, positions=2 * at) - model(TOKENS, positions=at)).abs().max() > 1e-2


@pytest.mark.parametrize("arguments", [{"positions": None}, {"core": "qkv-norm:rope_base=10.0"}])
def test_layers_that_leave_pairs_alone_share_whatever_they_are(arguments):
    same, other = (
        shaken(placement="pre-norm", **arguments, each=[{"rotary": rotary}, {"keys_of": 0}])
        for rotary in ("halves", "pairs")
    )
    assert torch.equal(same(TOKENS), other(TOKENS))


def test_a_layer_alone_names_what_it_lacks():
    sizes = {"dim": 8, "heads": 2, "hidden": 12, "depth": 2, "layer": 1}
    x = torch.zeros(2, 3, 8)
    with pytest.raises(TypeError, match="layer_input must be a tensor"):
        nk.TransformerLayer(placement="peri-norm", layer_inputs=5, **sizes)(x)
    with pytest.raises(ValueError, match=r"layer_input must have shape \(2, 3, 5\)"):
        nk.TransformerLayer(placement="peri-norm", layer_inputs=5, **sizes)(x, layer_input=torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="layer_input is given, but layer_inputs=None"):
        nk.TransformerLayer(placement="peri-norm", **sizes)(x, layer_input=torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match="Attention: keys_of=0, but lent is empty"):
        nk.TransformerLayer(placement="pre-norm", keys_of=0, **sizes)(x)


def test_what_shared_keys_and_sparsity_do_not_go_with_says_so():
    model = nk.Decoder(**SIZES, placement="pre-norm", each=SHARING)
    with pytest.raises(ValueError, match="reads the keys of layer 0, which others read too"):
        nk.ScoreClip(model)
