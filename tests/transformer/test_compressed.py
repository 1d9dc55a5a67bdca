"""Compressed attention: against its equations, with a cache, and what it refuses; experts by a token's number."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit.ops.rope import Frequencies
from normkit.transformer.attention import limited_swiglu
from normkit.transformer.compressed import CompressedAttention, Grouped

DOUBLE = torch.float64
TURNED = Frequencies((1.0, 0.1))
SHARED = {"head_dim": 6, "query_rank": 5, "groups": 2, "output_rank": 3, "window": 3, "frequencies": TURNED}
INDEX = {"index_heads": 2, "index_dim": 4, "top_k": 2}
FORMS = {"near": {}, "entries": {"rate": 3}, "chosen entries": {"rate": 2, **INDEX}}
MIXTURE = {"feedforward": "moe", "router": "deepseek-v4-router:experts=5,top_k=2,selection_bias=False"}


def shaken(module):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.double().eval()


def attention(form, **more):
    torch.manual_seed(0)
    return shaken(CompressedAttention(8, 4, **{**SHARED, **FORMS[form], **more}))


def decoder(**more):
    torch.manual_seed(0)
    each = [{"mixer": "compressed", "mixer_options": SHARED | form} for form in FORMS.values()]
    options = {"placement": "mhc", "streams": 3, "each": each, "norm": "rmsnorm", "positions": None, **MIXTURE}
    options |= {"activation": "limited_swiglu", "feedforward_options": {"hashed": 17, "shared": 6}}
    return shaken(nk.Decoder(vocab=17, dim=8, depth=3, heads=4, hidden=6, **{**options, **more}))


TOKENS = torch.randint(17, (2, 13), generator=torch.Generator().manual_seed(0))


def one_by_one(layer, x):
    """Each position by itself, with loops over windows and heads."""
    T, H, d, r = x.shape[0], layer.heads, layer.head_dim, 4
    cos, sin = (a.double() for a in TURNED.turns(torch.arange(T), r))

    def turn(v, t, sign=1):
        a, b, c, s = v[-r::2], v[-r + 1 :: 2], cos[t], sign * sin[t]
        return torch.cat([v[:-r], torch.stack([a * c - b * s, b * c + a * s], -1).flatten()])

    def entries(compressor):
        k, g, n, rate = compressor.key(x), compressor.gate(x), compressor.size, compressor.rate
        made = []
        for w in range(T // rate):
            rows = slice(w * rate, (w + 1) * rate)
            values, gates = k[rows, -n:], g[rows, -n:] + compressor.bias[:, -n:]
            if compressor.overlap and w:
                before = slice((w - 1) * rate, w * rate)
                values = torch.cat([k[before, :n], values])
                gates = torch.cat([g[before, :n] + compressor.bias[:, :n], gates])
            made.append(turn(compressor.norm((values * gates.softmax(0)).sum(0)), w * rate))
        return made

    few = layer.query_norm(layer.query_down(x))
    q = layer.query_up(few).view(T, H, d)
    q = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    keys = [turn(layer.norm(layer.key(x))[t], t) for t in range(T)]
    far = entries(layer.compressor) if layer.rate else []
    rows = []
    for t in range(T):
        seen = list(range((t + 1) // layer.rate)) if layer.rate else []
        if layer.indexer is not None:
            own, i = entries(layer.indexer.compressor), layer.indexer
            small = i.query(few)[t].view(i.heads, -1)
            share = i.weigh(x)[t] * i.heads**-0.5
            marks = [
                sum(share[h] * (turn(small[h], t) @ own[w]).relu() * i.size**-0.5 for h in range(i.heads)) for w in seen
            ]
            seen = sorted(seen, key=lambda w: -float(marks[w]))[: i.top_k]
        k = torch.stack([*(keys[s] for s in range(max(0, t - layer.window + 1), t + 1)), *(far[w] for w in seen)])
        heads = []
        for h in range(H):
            scores = torch.cat([k @ turn(q[t, h], t) * d**-0.5, layer.core.sink[h : h + 1]])
            heads.append(turn(scores.softmax(0)[:-1] @ k, t, -1))
        rows.append(torch.cat(heads))
    return layer.output(layer.output_down(torch.stack(rows)))


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_it_is_its_equations(form):
    layer, x = attention(form), torch.randn(11, 8, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    torch.testing.assert_close(layer(x.unsqueeze(0))[0], one_by_one(layer, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_parts_with_a_cache_are_the_whole_and_what_comes_later_is_not_seen(form):
    layer, x = attention(form), torch.randn(2, 13, 8, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    want, cache = layer(x), layer.empty_cache()
    parts = [layer(part, cache=cache) for part in x.split([1, 1, 4, 2, 5], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), want)
    assert len(cache) == 13
    assert cache.keys.shape[1] == 2, "no more than a window's"
    changed = x.clone()
    changed[:, 7] += 1
    assert torch.equal(layer(changed)[:, :7], want[:, :7])


def test_groups_are_mapped_apart():
    layer, x = Grouped(3, 2, 4), torch.randn(5, 12)
    parts = [x[:, 3 * g : 3 * g + 3] @ layer.weight[2 * g : 2 * g + 2].T for g in range(4)]
    torch.testing.assert_close(layer(x), torch.cat(parts, -1))


def test_a_model_generates_trains_is_one_graph_and_may_be_checkpointed():
    model = decoder()
    want = model.generate(TOKENS, 5, temperature=0, cached=False)
    assert torch.equal(model.generate(TOKENS, 5, temperature=0), want)
    logits = model(TOKENS)
    logits.square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    idle = {name for name, grad in gradients.items() if grad is None}
    assert all("indexer" in name for name in idle), "a choice has no gradient"
    assert idle
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(TOKENS), logits)
    model.zero_grad()
    for layer in model.layers:
        forward = layer.forward
        layer.forward = lambda *args, forward=forward, **named: checkpoint(forward, *args, use_reentrant=False, **named)
    model(TOKENS).square().sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name])


@torch.no_grad()
def test_a_token_s_experts_stand_in_the_table():
    model = decoder()
    mixture, x = model.layers[0].feedforward, torch.randn(2, 3, 8, dtype=DOUBLE)
    numbers = torch.tensor([[4, 0, 16], [2, 2, 9]])
    assert torch.equal(mixture.table[9], torch.tensor([4, 0]))
    y = mixture(x, numbers=numbers)
    for b in range(2):
        for t in range(3):
            p = (x[b, t] @ mixture.router.weight.T).exp().log1p().sqrt()
            at = mixture.table[numbers[b, t]]
            want = mixture.shared(x[b, t])
            for weight, e in zip(p[at] / p[at].sum(), at, strict=True):
                h = mixture.up.weight[e] @ x[b, t]
                u, gate = h.chunk(2)
                want = want + weight * (mixture.down.weight[e] @ (nn.functional.silu(gate) * u))
            torch.testing.assert_close(y[b, t], want)
    assert mixture.load.shape == (5,)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"groups": 3}, "CompressedAttention: groups=3 does not divide heads=4"),
        ({"rate": 0}, "CompressedAttention: rate must be"),
        ({"top_k": 0, "rate": 2, "index_heads": 2, "index_dim": 4}, "CompressedAttention: top_k must be"),
        ({"top_k": 2, "rate": 2}, "index_heads, index_dim, top_k and rate go together"),
        (INDEX, "index_heads, index_dim, top_k and rate go together"),
        ({"rate": 2, **INDEX, "index_dim": 3}, "index_dim must have the features that frequencies turn"),
        ({"frequencies": 4}, "frequencies must be Frequencies of 1 to head_dim / 2 pairs, not 4"),
        ({"frequencies": Frequencies((1.0,) * 4)}, "frequencies must be Frequencies of 1 to head_dim / 2 pairs"),
        ({"frequencies": Frequencies(())}, "frequencies must be Frequencies of 1 to head_dim / 2 pairs"),
        ({"causal": False}, "CompressedAttention: causal must be True"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        CompressedAttention(8, 4, **{**SHARED, **options})


def test_masks_numbers_and_empty_texts():
    x, seen = torch.randn(2, 5, 8, dtype=DOUBLE), torch.ones(2, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match="with a rate there is no mask"):
        attention("entries")(x, seen)
    layer = attention("near")
    seen[:, :2] = False
    hidden = x.clone()
    hidden[:, :2] += 1
    torch.testing.assert_close(layer(x, seen)[:, 2:], layer(hidden, seen)[:, 2:])
    mixture = decoder().layers[0].feedforward
    for numbers, error in ((None, TypeError), (torch.full((2, 5), 17), (IndexError, ValueError))):
        with pytest.raises(error, match="numbers"):
            mixture(x, numbers=numbers)
    with pytest.raises(ValueError, match="hashed"):
        decoder(feedforward_options={"hashed": -1})
    assert decoder()(TOKENS[:, :0]).shape == (2, 0, 17)


def test_the_gate_is_limited_above_and_what_it_opens_on_both_sides():
    u, gate = torch.tensor([-30.0, -10.0, 3.0, 30.0]), torch.tensor([30.0, -30.0, 2.0, 10.0])
    silu = lambda g: g / (1 + math.exp(-g))  # noqa: E731
    want = [-10 * silu(10.0), -10 * silu(-30.0), 3 * silu(2.0), 10 * silu(10.0)]
    assert limited_swiglu(torch.cat([u, gate])).tolist() == pytest.approx(want, rel=1e-6)
