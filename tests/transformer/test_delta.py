"""Mixers in the place of attention: the gated delta rule against its recurrence, latent attention, both with caches."""

import pytest
import torch

import normkit as nk
from normkit.transformer.attention import Attention
from normkit.transformer.delta import DeltaNet, delta_scan
from normkit.transformer.latent import LatentAttention

SIZES = {"key_heads": 2, "key_dim": 3, "value_dim": 5}
LATENT = {"rank": 5, "head_dim": 3, "shared_dim": 2, "value_dim": 4}
MIXERS = {
    "delta-net": SIZES,
    "delta-net of features": {**SIZES, "decay": "feature", "gate": "sigmoid", "rank": 3, "taps": 2},
    "latent": LATENT,
    "latent of few": {**LATENT, "query_rank": 6},
}


def drawn(length, features, seed=0):
    g = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, 4, generator=g, dtype=torch.float64) for _ in range(2))
    v = torch.randn(2, 3, length, 5, generator=g, dtype=torch.float64)
    decay = -3 * torch.rand(2, 3, length, features, generator=g, dtype=torch.float64) ** 4
    beta = torch.rand(2, 3, length, 1, generator=g, dtype=torch.float64)
    return q, k / k.norm(dim=-1, keepdim=True), v, decay, beta


def one_by_one(q, k, v, decay, beta, state):
    results = []
    for t in range(q.shape[-2]):
        state = decay[..., t, :, None].exp() * state
        wrong = v[..., t, :] - (k[..., t, :, None] * state).sum(-2)
        state = state + beta[..., t, :, None] * k[..., t, :, None] * wrong[..., None, :]
        results.append((q[..., t, :, None] * state).sum(-2))
    return torch.stack(results, -2), state


@pytest.mark.parametrize("features", [1, 4])
@pytest.mark.parametrize("length", [1, 2, 16, 37])
def test_the_scan_is_the_recurrence(features, length):
    inputs, state = drawn(length, features), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    for got, want in zip(delta_scan(*inputs, state, chunk=16), one_by_one(*inputs, state), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    first, last = ([x[..., part, :] for x in inputs] for part in (slice(0, 1), slice(1, None)))
    head, middle = delta_scan(*first, state)
    tail, _ = delta_scan(*last, middle)
    torch.testing.assert_close(torch.cat([head, tail], -2), one_by_one(*inputs, state)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("features", [1, 4])
def test_the_scan_has_the_derivatives_of_the_recurrence(features):
    inputs = [x.requires_grad_() for x in drawn(9, features)]
    state = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 9, 5, dtype=torch.float64)
    losses = [(run(*inputs, state)[0] * weight).sum() for run in (lambda *a: delta_scan(*a, chunk=4), one_by_one)]
    got, want = (torch.autograd.grad(loss, [*inputs, state]) for loss in losses)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("features", [1, 4])
def test_a_memory_that_was_erased_long_ago_costs_no_digits(features):
    q, k, v, decay, beta = drawn(40, features)
    decay[..., :20, :] = -1e6  # differences of sums of these would have lost what follows
    wide = one_by_one(q, k, v, decay, beta, q.new_zeros(2, 3, 4, 5))[0]
    got = delta_scan(*(x.float() for x in (q, k, v, decay, beta)))[0]
    torch.testing.assert_close(got.double(), wide, rtol=0, atol=2e-6)


def decoder(mixer, **more):
    torch.manual_seed(0)
    options = {"mixer": mixer.split(" ")[0], "mixer_options": MIXERS[mixer], **more}
    model = nk.Decoder(vocab=17, dim=12, depth=2, heads=4, hidden=8, std=0.5, **options)
    return model.eval()


TOKENS = torch.randint(17, (2, 21), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_a_model_with_a_cache_gives_the_numbers_of_the_full_pass(mixer):
    model = decoder(mixer)
    want, cache, parts = model(TOKENS), model.empty_cache(), []
    for part in TOKENS.split([1, 1, 5, 14], 1):
        parts.append(model(part, None, cache))
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=0, atol=2e-5 * want.abs().max().item())
    changed = TOKENS.clone()
    changed[:, 11] = (changed[:, 11] + 1) % 17
    assert torch.equal(model(changed)[:, :11], want[:, :11])
    assert not torch.allclose(model(changed)[:, 11:], want[:, 11:])


@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_a_text_without_tokens_passes_and_leaves_a_cache_as_it_is(mixer):
    model = decoder(mixer)
    assert model(TOKENS[:, :0]).shape == (2, 0, 17)
    cache, parts = model.empty_cache(), []
    for part in TOKENS.split([0, 2, 0, 19], 1):
        parts.append(model(part, None, cache))
    want = model(TOKENS)
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=0, atol=2e-5 * want.abs().max().item())


@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_padding_before_a_text_changes_nothing_with_a_cache_too(mixer):
    model = decoder(mixer)
    seen = torch.ones(2, 21, dtype=torch.bool)
    seen[:, :4] = False
    want = model(TOKENS[:, 4:])
    cache = model.empty_cache()
    got = [model(TOKENS[:, :9], seen[:, :9], cache)[:, 4:], model(TOKENS[:, 9:], seen, cache)]
    torch.testing.assert_close(torch.cat(got, 1), want, rtol=0, atol=2e-5 * want.abs().max().item())


@pytest.mark.parametrize("mixer", MIXERS)
def test_all_that_a_mixer_learns_learns(mixer):
    model = decoder(mixer).train()
    model(TOKENS).logsumexp(-1).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())
    half = decoder(mixer).to(torch.bfloat16)
    assert half(TOKENS).dtype is torch.bfloat16


def test_layers_may_differ():
    each = [{"mixer": "delta-net"}, {"mixer": "latent", "mixer_options": LATENT}, {"core": "gated-attention"}]
    model = nk.Decoder(vocab=17, dim=12, depth=4, heads=2, each=each)
    assert [type(layer.attention) for layer in model.layers] == [DeltaNet, LatentAttention, Attention, DeltaNet]
    want = model.generate(TOKENS, 4, temperature=0, cached=False)
    assert torch.equal(model.generate(TOKENS, 4, temperature=0), want)


def test_a_gate_that_is_closed_hides_what_its_core_returns():
    model = nk.Decoder(vocab=17, dim=12, depth=1, heads=2, core="gated-attention", bias=True)
    attention = model.layer(0).attention
    x = torch.randn(2, 5, 12)
    with torch.no_grad():
        attention.gate.weight.zero_()
        attention.gate.bias.fill_(-1e4)
    assert torch.equal(attention(x), attention.output.bias.expand(2, 5, 12))
    assert not torch.equal(nk.Decoder(vocab=17, dim=12, depth=1, heads=2).layer(0).attention(x), attention(x))


@pytest.mark.parametrize("given, has", [(None, True), (False, False), (True, True)])
def test_the_output_has_a_bias_as_the_other_maps_have_unless_one_is_named(given, has):
    maps = dict(Attention(8, 2, bias=True, output_bias=given).named_children())
    assert {name: maps[name].bias is not None for name in ("query", "key", "value", "output")} == {
        **dict.fromkeys(("query", "key", "value"), True),
        "output": has,
    }
    assert (Attention(8, 2, output_bias=given).output.bias is not None) == bool(given)


def test_only_the_first_features_of_a_head_are_turned():
    torch.manual_seed(0)
    model = nk.Decoder(vocab=17, dim=16, depth=1, heads=2, rotary_dim=4, query_key_norm="head", norm="rmsnorm")
    attention = model.layer(0).attention
    x, angles = torch.randn(2, 5, 16), model._angles(torch.arange(5))
    plain, turned = attention._heads("query", x), attention._heads("query", x, angles)
    assert angles[0].shape == (5, 2)
    assert torch.equal(turned[..., 4:], plain[..., 4:])
    assert not torch.allclose(turned[:, :, 1:, :4], plain[:, :, 1:, :4])
    torch.testing.assert_close(turned[..., :4].norm(dim=-1), plain[..., :4].norm(dim=-1))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"mixer": "delta"},
            "TransformerLayer: mixer must be one of 'attention', 'delta-net', 'latent', 'compressed', not 'delta'",
        ),
        ({"mixer_options": {"taps": 2}}, "TransformerLayer: mixer_options are of another mixer: delta-net, latent"),
        (
            {"mixer": "delta-net", "mixer_options": {"tap": 2}},
            "mixer_options must be one of .*, not 'tap'",
        ),
        (
            {"mixer": "delta-net", "core": "lightning"},
            "mixer='delta-net' takes no core; its arguments",
        ),
        ({"mixer": "delta-net", "window": 3}, "mixer='delta-net' takes no window"),
        ({"mixer": "delta-net", "placement": "ngpt"}, "placement 'ngpt' reaches into attention"),
        ({"mixer": "delta-net", "causal": False}, "DeltaNet: causal must be True"),
        ({"mixer": "delta-net", "mixer_options": {"key_heads": 3}}, "DeltaNet: key_heads=3 does not divide heads=4"),
        ({"mixer": "delta-net", "mixer_options": {"decay": "all"}}, "DeltaNet: decay must be one of 'head', 'feature'"),
        ({"mixer": "delta-net", "mixer_options": {"taps": 0}}, "DeltaNet: taps must be at least 1, not 0"),
        ({"mixer": "delta-net", "mixer_options": {"rank": 0}}, "DeltaNet: rank must be at least 1, not 0"),
        ({"mixer": "delta-net", "frequencies": [nk.ops.rope.Frequencies((1.0,))]}, "turn 1 pairs, but a head has 0"),
        (
            {"mixer": "latent", "mixer_options": {**LATENT, "query_rank": 0}},
            "LatentAttention: query_rank must be",
        ),
        ({"rotary_dim": 3}, "Attention: rotary_dim must be even, since features turn in pairs, not 3"),
        ({"mixer": "latent"}, "mixer='latent': mixer_options must hold rank, head_dim, shared_dim, value_dim"),
        ({"rotary_dim": 6}, "Attention: rotary_dim must be at most 4, not 6"),
        ({"each": []}, "Decoder: each must be a sequence of one dictionary of arguments or more, not "),
        ({"each": [{"depth": 3}]}, "Decoder: each has 'depth', which all layers share"),
        ({"each": [{}, {"rotary_dim": 2}]}, "Decoder: rotary positions turn one number of features, not 2, 4"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        nk.Decoder(**{"vocab": 17, "dim": 16, "depth": 2, "heads": 4, **arguments})


@pytest.mark.parametrize("mixer", ["delta-net", "latent"])
def test_a_mask_of_another_size_is_named(mixer):
    with pytest.raises(ValueError, match=r": mask must have shape"):
        decoder(mixer)(TOKENS, torch.ones(2, 20, dtype=torch.bool))


def test_the_state_of_another_core_is_named():
    model, other = decoder("delta-net"), nk.Decoder(vocab=17, dim=16, depth=2, heads=4, core="lightning")
    cache = other.empty_cache()
    other(TOKENS, cache=cache)
    with pytest.raises(TypeError, match=r"DeltaNet: cache must be what its own empty_cache\(\) returns, not of Memory"):
        model(TOKENS, cache=cache)
