"""Attention cores that compare every query with every key, against loops over the equations in float64."""

import math

import pytest
import torch

import normkit as nk
from normkit.attention import _window
from normkit.ops.rope import rope, rotate, rotate_formula, turns

N, HEADS, T, S, DIM = 2, 3, 7, 9, 4


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def triple(heads=HEADS, queries=T, keys=S, dim=DIM, value=DIM, key_heads=None):
    """Queries, keys and values, drawn apart."""
    many = heads if key_heads is None else key_heads
    return draw(N, many, queries, dim), draw(N, many, keys, dim, seed=1), draw(N, heads, keys, value, seed=2)


def mask_with_a_blind_row(queries=T, keys=S):
    mask = torch.rand(N, HEADS, queries, keys, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[0, :, 2] = False
    mask[1, 0, 0] = False
    return mask


def core(name, *args, seed=0, **kwargs):
    """A core in float64 whose parameters are not at rest."""
    torch.manual_seed(seed)
    module = nk.create(name, *args, **kwargs).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.rand_like(parameter))
    return module


def loop(q, k, v, weigh, mask=None, causal=False):
    """Row by row: ``weigh(head, row, keys, scores)`` makes weights of the scores of the keys that the row sees."""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
    for n in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if (mask is None or mask[n, h, i, j]) and (not causal or j <= i)]
                if seen:
                    scores = torch.stack([q[n, h, i] @ k[n, h, j] for j in seen])
                    out[n, h, i] = sum(a * v[n, h, j] for a, j in zip(weigh(h, i, scores), seen, strict=True))
    return out


def softmax(scale):
    return lambda h, i, scores: (scores * scale).exp() / (scores * scale).exp().sum()


def each(x, function):
    """Apply a function to every vector."""
    return torch.stack([function(row) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


def rms(weight, eps):
    return lambda x: x / math.sqrt(sum(a * a for a in x.tolist()) / len(x) + eps) * weight


def layer(weight, bias, eps):
    def norm(x):
        mean = sum(x.tolist()) / len(x)
        return (x - mean) / math.sqrt(sum((a - mean) ** 2 for a in x.tolist()) / len(x) + eps) * weight + bias

    return norm


def length(x):
    return x / max(math.sqrt(sum(a * a for a in x.tolist())), 1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["l2", "layernorm", "rmsnorm"])
def test_qk_norm_is_its_equations(norm, causal):
    module = core("qk-norm", DIM, heads=HEADS, causal=causal, norm=norm, **({"length": 20} if norm == "l2" else {}))
    (q, k, v), mask = triple(value=5), mask_with_a_blind_row()
    state = module.state_dict()
    with torch.no_grad():
        if norm == "l2":
            want = loop(each(q, length), each(k, length), v, softmax(state["scale"].item()), mask, causal)
        else:
            make = {
                "layernorm": lambda w: layer(state[f"{w}_norm.weight"], state[f"{w}_norm.bias"], 1e-5),
                "rmsnorm": lambda w: rms(state[f"{w}_norm.weight"], 1e-6),
            }[norm]
            want = loop(each(q, make("query")), each(k, make("key")), v, softmax(DIM**-0.5), mask, causal)
        close(module(q, k, v, mask), want)
    assert (want[0, :, 2] == 0).all()


def test_qk_norm_starts_at_the_base_two_logarithm_of_the_pairs():
    assert nk.create("qk-norm", 4, heads=1, length=37).scale.item() == pytest.approx(math.log2(37**2 - 37))
    assert nk.create("qk-norm", 4, heads=1, scale=3.5).scale.item() == 3.5
    assert nk.create("qk-norm", 4, heads=1, scale=3.5).scale.shape == ()


def test_qk_norm_bounds_every_score_and_forgets_lengths():
    module = core("qk-norm", DIM, heads=HEADS, length=30)
    q, k, v = triple()
    close(module(q * 1e3, k * torch.rand(N, HEADS, S, 1).double() * 50, v), module(q, k, v))
    weights = module(q * 1e6, k, torch.eye(S, dtype=torch.float64).expand(N, HEADS, S, S))
    assert (weights.amax(-1) / weights.amin(-1)).log().max() <= 2 * module.scale + 1e-9


def test_a_layernorm_bias_of_the_keys_moves_no_weight():
    module = core("qk-norm", DIM, heads=HEADS, norm="layernorm")
    module(*triple()).square().sum().backward()
    assert module.key_norm.bias.grad.abs().max() < 1e-12 < module.query_norm.bias.grad.abs().max()


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({}, "length"),
        ({"length": 10, "scale": 2.0}, "length"),
        ({"length": 1}, "length"),
        ({"norm": "rmsnorm", "scale": 2.0}, "scale"),
        ({"norm": "layernorm", "length": 9}, "length"),
        ({"norm": "batchnorm", "length": 9}, "norm"),
    ],
)
def test_qk_norm_refuses_by_name(arguments, word):
    with pytest.raises(ValueError, match=word):
        nk.create("qk-norm", 4, heads=2, **arguments)


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_qkv_norm_is_its_equations(norm):
    module = core("qkv-norm", DIM, heads=HEADS, norm=norm, eps=1e-3, rope_base=100.0, causal=True)
    (q, k, v), mask, state = triple(), mask_with_a_blind_row(), module.state_dict()

    def normed(x, which):
        weight = state[f"{which}_norm.weight"]
        return each(x, rms(weight, 1e-3) if norm == "rmsnorm" else layer(weight, state[f"{which}_norm.bias"], 1e-3))

    q_hat, k_hat = (turned(normed(x, w), 100.0, "halves") for x, w in ((q, "query"), (k, "key")))
    with torch.no_grad():
        close(module(q, k, v, mask), loop(q_hat, k_hat, normed(v, "value"), softmax(DIM**-0.5), mask, causal=True))


def turned(x, base, pairing):
    """Rotate by complex multiplication, pair by pair."""
    y, d = x.clone(), x.shape[-1]
    for t in range(x.shape[-2]):
        for i in range(d // 2):
            a, b = (i, i + d // 2) if pairing == "halves" else (2 * i, 2 * i + 1)
            angle = torch.tensor(t * base ** (-2 * i / d), dtype=torch.float64)
            z = torch.complex(x[..., t, a], x[..., t, b]) * torch.polar(torch.ones_like(angle), angle)
            y[..., t, a], y[..., t, b] = z.real, z.imag
    return y


@pytest.mark.parametrize("pairing", ["halves", "pairs"])
def test_rope_turns_pairs_by_position(pairing):
    x = draw(2, 3, 11, 6)
    close(rope(x, 50.0, pairing), turned(x, 50.0, pairing))
    positions = torch.tensor([[4, 0, 9]])
    close(
        rotate(x[0, :1, [4, 0, 9]], turns(positions, 6, 50.0, torch.float64), pairing),
        turned(x, 50.0, pairing)[0, :1, [4, 0, 9]],
    )


@pytest.mark.parametrize("pairing", ["halves", "pairs"])
def test_rope_makes_products_of_distances(pairing):
    q, k = draw(6).expand(30, 6), draw(6, seed=1).expand(30, 6)
    products = rope(q, pairing=pairing) @ rope(k, pairing=pairing).T
    for lag in (-7, 0, 3):
        diagonal = products.diagonal(lag)
        close(diagonal, diagonal[0].expand_as(diagonal))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pairing", ["halves", "pairs"])
def test_the_rotation_in_place_is_its_formula(pairing, dtype):
    x = draw(2, 7, 3, 6).to(dtype).transpose(1, 2)
    angles = turns(torch.arange(7), 6, 50.0, torch.float64)
    wanted = rotate_formula(x.double(), *angles, pairing).to(dtype)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2.0**-7}[dtype]
    close(rotate(x, angles, pairing), wanted, rtol=tolerance, atol=tolerance)
    if dtype == torch.float64:
        x = x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x: rotate(x, angles, pairing), x)
        assert torch.autograd.gradgradcheck(lambda x: rotate(x, angles, pairing).pow(3), x)


@pytest.mark.parametrize("pairing", ["halves", "pairs"])
def test_angles_can_be_learned(pairing):
    x, (cos, sin) = draw(2, 5, 6).requires_grad_(), turns(torch.arange(5), 6, 50.0, torch.float64)
    angles = cos.requires_grad_(), sin.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, c, s: rotate(x, (c, s), pairing), (x, *angles))


def test_a_hidden_token_has_the_score_zero_under_an_attack_too():
    module = core("adversarial-attention", 4)
    with torch.no_grad():
        module.score.weight.fill_(-15.0)
        module.hidden.weight.zero_(), module.hidden.bias.fill_(9.0)
    hidden, mask = draw(1, 3, 4), torch.tensor([[True, True, False]])
    seen = torch.tensor(-30.0, dtype=torch.float64).exp() / (1 + 2 * math.exp(-30))
    want = torch.where(mask, seen / (2 * seen + 1e-13), 0)
    close(module(hidden, mask), want)
    close(module.perturbed(hidden, mask, torch.zeros(1, 3, dtype=torch.float64)), want)


def test_rope_refuses_by_name():
    with pytest.raises(ValueError, match="head_dim"):
        rope(torch.zeros(3, 5))
    with pytest.raises(ValueError, match="pairing"):
        rope(torch.zeros(3, 4), pairing="interleaved")
    for name, more in (("qkv-norm", {"rope_base": 10.0}), ("rnope", {"layer": 0})):
        with pytest.raises(ValueError, match="head_dim"):
            nk.create(name, 5, heads=2, **more)


@pytest.mark.parametrize("causal", [False, True])
def test_normalized_attention_is_its_equations(causal):
    module = core("normalized-attention", DIM, heads=HEADS, causal=causal)
    (q, k, v), mask = triple(value=5), mask_with_a_blind_row()

    def weigh(h, i, scores):
        mean = scores.sum() / len(scores)
        deviation = math.sqrt(((scores - mean) ** 2).sum() / len(scores)) + 1e-3
        return module.weight[h] * (scores - mean) / deviation + module.bias[h]

    with torch.no_grad():
        close(module(q, k, v, mask), loop(q, k, v, weigh, mask, causal))
        close(module(q, k, v), loop(q, k, v, weigh, causal=causal))


def test_a_row_that_sees_one_key_gets_the_shift_of_its_value():
    module = core("normalized-attention", DIM, heads=HEADS)
    q, k, v = (x.requires_grad_() for x in triple(queries=2, keys=2))
    y = module(q, k, v, torch.eye(2, dtype=torch.bool))
    close(y, module.bias.view(-1, 1, 1) * v)
    y.sum().backward()
    assert q.grad.abs().max() == 0
    assert k.grad.abs().max() == 0


@pytest.mark.parametrize("pos_dim", [0, 2])
@pytest.mark.parametrize("norm", ["layer", None])
def test_fourier_is_its_quadratic_form(norm, pos_dim):
    module = core("fourier", DIM, heads=HEADS, norm=norm, pos_dim=pos_dim)
    (q, k, v), state = triple(keys=T), module.state_dict()
    pos = draw(N, T, 2, seed=5) if pos_dim else None
    with torch.no_grad():
        got = module(q, k, v, pos)
        if norm is not None:
            for x, which in ((q, "query"), (k, "key")):
                for h in range(HEADS):
                    weight, bias = state[f"{which}_norm.weight"][h], state[f"{which}_norm.bias"][h]
                    x[:, h] = each(x[:, h], layer(weight, bias, 1e-5))
        if pos_dim:
            q, k, v = (torch.cat([pos[:, None].expand(-1, HEADS, -1, -1), x], -1) for x in (q, k, v))
        close(got, loop(q, k, v, lambda h, i, scores: scores / (math.sqrt(DIM + pos_dim) * T)))


def test_fourier_refuses_the_norm_that_is_broken():
    with pytest.raises(ValueError, match="norm"):
        nk.create("fourier", 4, heads=2, norm="instance")


@pytest.mark.parametrize("name", ["fourier", "differential-integral"])
def test_padding_is_as_if_it_were_not_there(name):
    more = {"depth": 2} if name.startswith("diff") else {}
    module = core(name, DIM, heads=HEADS, **more)
    wide = {"value": 2 * DIM, "key_heads": 2 * HEADS} if more else {}
    q, k, v = triple(keys=T, **wide)
    mask = torch.ones(N, 1, 1, T, dtype=torch.bool)
    mask[..., 4:] = False
    short = module(*(x[:, :, :4] for x in (q, k, v)))
    close(module(q, k, v, mask=mask)[:, :, :4], short)
    close(module(q, k, v, mask=mask[0, 0, 0])[:, :, :4], short)
    with pytest.raises(ValueError, match="mask"):
        module(q, k, v, mask=torch.ones(N, 1, T, T, dtype=torch.bool))


def two_maps(module, q, k, v, mask=None, causal=False):
    """A1 v, A2 v and the weight of the second."""
    state = module.state_dict()
    lam = math.exp(state["lambda_query1"] @ state["lambda_key1"]) - math.exp(
        state["lambda_query2"] @ state["lambda_key2"]
    )
    lam += 0.8 - 0.6 * math.exp(-0.3 * module.arguments["depth"])
    scale = softmax(DIM**-0.5)
    return *(loop(q[:, p::2], k[:, p::2], v, scale, mask, causal) for p in (0, 1)), lam


def headwise(module, o):
    start = 0.8 - 0.6 * math.exp(-0.3 * module.arguments["depth"])
    return (1 - start) * each(o, rms(module.norm.weight.detach(), 1e-5))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_differential_is_its_equations(masked, causal):
    module = core("differential", DIM, heads=HEADS, depth=3, causal=causal)
    q, k, v = triple(value=2 * DIM, key_heads=2 * HEADS)
    mask = mask_with_a_blind_row() if masked else None
    first, second, lam = two_maps(module, q, k, v, mask, causal)
    with torch.no_grad():
        close(module(q, k, v, mask), headwise(module, first - lam * second))


def test_differential_rows_sum_to_one_minus_lambda_and_integral_rows_to_one():
    """Values whose first feature is 1 show the row sums, before the norm."""
    q, k, v = triple(keys=T, value=2 * DIM, key_heads=2 * HEADS)
    v[..., 0] = 1
    for name, want in (("differential", lambda lam: 1 - lam), ("differential-integral", lambda lam: 1.0)):
        module = core(name, DIM, heads=HEADS, depth=1)
        seen = []
        module.norm.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
        module(q, k, v)
        lam = module.second_weight().item()
        close(seen[0][..., 0], torch.full((N, HEADS, T), want(lam), dtype=torch.float64))


@pytest.mark.parametrize("depth", [0, 9])
def test_differential_integral_is_its_equations(depth):
    module = core("differential-integral", DIM, heads=HEADS, depth=depth)
    q, k, v = triple(keys=T, value=2 * DIM, key_heads=2 * HEADS)
    first, second, lam = two_maps(module, q, k, v)
    average = torch.zeros(N, HEADS, T, T, dtype=torch.float64)
    for i in range(T):  # the mean row of A1, worked out from its definition
        scores = (q[:, ::2, i, None] * k[:, ::2]).sum(-1) * DIM**-0.5
        average += (scores.exp() / scores.exp().sum(-1, keepdim=True))[:, :, None] / T
    with torch.no_grad():
        close(module(q, k, v), headwise(module, first - lam * second + lam * average @ v))


def test_the_lambdas_start_small_and_the_depth_counts_from_zero():
    module = nk.create("differential", 512, heads=1, depth=0)
    assert module.start == pytest.approx(0.2)
    for name in ("lambda_query1", "lambda_key1", "lambda_query2", "lambda_key2"):
        assert module.state_dict()[name].std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("power", [None, 3, 15, 1.5])
@pytest.mark.parametrize("masked", [False, True])
def test_softplus_attention_is_its_equations(power, causal, masked):
    module = core("softplus-attention", DIM, heads=HEADS, causal=causal, power=power, free_rows=2)
    (q, k, v), mask = triple(value=5), mask_with_a_blind_row() if masked else None

    def weigh(h, i, scores):
        n = len(scores)
        a = (scores * math.log(DIM) * math.log(n)).exp().log1p()
        a = a / max(a.sum().item(), 1e-12)
        if power is None:
            return a
        b = (n * a - (0 if (n if causal else i + 1) <= 2 else 1)).clamp(min=0) ** power
        return b / max(b.sum().item(), 1e-12)

    close(module(q, k, v, mask), loop(each(q, length), each(k, length), v, weigh, mask, causal))


def test_softplus_attention_sharpens_without_overflow():
    """One key of 60 000 stands out: its excess to the 15th power is beyond float32."""
    keys = 60_000
    k = -torch.ones(1, 1, keys, 64)
    k[:, :, 7] = 1
    v = torch.arange(float(keys)).view(1, 1, keys, 1)
    module = nk.create("softplus-attention", 64, heads=1, causal=False, power=15, free_rows=0)
    q = torch.ones(1, 1, 1, 64, requires_grad=True)
    y = module(q, k, v)
    assert y.item() == 7
    y.sum().backward()
    assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("power", [None, 3])
def test_softplus_attention_of_no_keys_is_zero(power):
    module = nk.create("softplus-attention", DIM, heads=1, causal=False, power=power)
    nothing = torch.ones(1, 1, 0, DIM)
    assert (module(torch.ones(1, 1, 2, DIM), nothing, nothing) == 0).all()


def test_softplus_attention_row_of_equal_weights_vanishes_past_the_free_ones():
    module = nk.create("softplus-attention", DIM, heads=1, causal=False, power=3, free_rows=1, eps=0.0)
    q = torch.zeros(1, 1, 2, DIM, requires_grad=True)
    y = module(q, torch.ones(1, 1, 4, DIM), torch.ones(1, 1, 4, DIM))
    close(y[0, 0], torch.tensor([[1.0], [0.0]]).expand(2, DIM))
    y.sum().backward()
    assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("layer, full", [(0, False), (2, False), (3, True), (7, True)])
def test_rnope_takes_turns(layer, full):
    module = nk.create("rnope", DIM, heads=HEADS, layer=layer, window=3, rope_base=100.0)
    assert module.full is full
    q, k, v = triple(keys=T)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    turn = (lambda x: x) if full else (lambda x: turned(x, 100.0, "pairs"))
    mask = mask if full else mask & ~mask.tril(-3)
    assert full or mask.sum(-1).max() == 3
    mask = mask.expand(N, HEADS, T, T)
    close(module(q, k, v), loop(turn(q), turn(k), v, softmax(DIM**-0.5), mask))
    padded = torch.ones(N, 1, 1, T, dtype=torch.bool)
    padded[1, ..., 0] = False
    close(module(q, k, v, padded), loop(turn(q), turn(k), v, softmax(DIM**-0.5), mask & padded))


@pytest.mark.parametrize("length", [1, 5, 8, 9, 16, 29, 40])
@pytest.mark.parametrize("window", [1, 3, 8, 11])
def test_a_window_in_blocks_is_the_window(length, window, monkeypatch):
    monkeypatch.setattr(_window, "BLOCK", 8)
    q, k, v = (x.requires_grad_() for x in triple(queries=length, keys=length, value=6))
    lag = torch.arange(length)[:, None] - torch.arange(length)
    seen = ((lag >= 0) & (lag < window)).expand(N, HEADS, length, length)
    for scale in (None, 0.3):
        got = _window.window_attention(q, k, v, window, scale=scale)
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, scale=scale)
        close(got, want)
        grads = (torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (got, want))
        for a, b in zip(*grads, strict=True):
            close(a, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "similarity, value, heads",
    [
        ("collapsed", False, 1),
        ("collapsed", True, 1),
        ("symmetric", False, 1),
        ("symmetric", True, 2),
        ("full", True, 2),
    ],
)
def test_minimal_transformer_is_its_equations(similarity, value, heads, causal):
    module = core("minimal-transformer", 6, similarity=similarity, value=value, heads=heads, causal=causal)
    state, x = module.state_dict(), draw(N, T, 6)
    wanted = ["query", *(["key"] if similarity == "full" else []), *(["value", "output"] if value else [])]
    assert list(state) == [f"{name}.weight" for name in wanted]

    def mapped(x, name):
        return x @ state[f"{name}.weight"].T if f"{name}.weight" in state else x

    q, v = mapped(x, "query"), mapped(x, "value")
    k = q if similarity == "symmetric" else mapped(x, "key")
    cut = [z.reshape(N, T, heads, -1).transpose(1, 2) for z in (q, k, v)]
    o = loop(*cut, softmax((6 // heads) ** -0.5), causal=causal).transpose(1, 2).reshape(N, T, 6)
    with torch.no_grad():
        close(module(x), mapped(o, "output"))


def test_minimal_transformer_without_values_stays_in_the_convex_hull():
    module, x = core("minimal-transformer", 6), 5 * draw(N, T, 6)
    y = module(x)
    assert (y.amax(1) <= x.amax(1)).all()
    assert (y.amin(1) >= x.amin(1)).all()


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"heads": 2}, "collapsed"),
        ({"heads": 2, "value": True}, "collapsed"),
        ({"heads": 2, "similarity": "symmetric"}, "value=False"),
        ({"heads": 4, "similarity": "full", "value": True}, "heads=4"),
        ({"similarity": "triangular"}, "similarity"),
    ],
)
def test_minimal_transformer_refuses_by_name(arguments, word):
    with pytest.raises(ValueError, match=word):
        nk.create("minimal-transformer", 6, **arguments)


@pytest.mark.parametrize(
    "name, arguments, causal",
    [("fourier", {}, True), ("differential-integral", {"depth": 0}, True), ("rnope", {"layer": 0}, False)],
)
def test_a_form_that_a_core_has_not_is_refused_with_those_that_have_it(name, arguments, causal):
    with pytest.raises(ValueError, match="causal") as caught:
        nk.create(name, DIM, heads=2, causal=causal, **arguments)
    for able in ("softmax", "qk-norm", "qkv-norm", "normalized-attention", "softplus-attention", "differential,"):
        assert able in f"{caught.value},"
    assert f"{name}," not in f"{caught.value},"


BLIND = {
    "qk-norm": {"length": 9},
    "qkv-norm": {"rope_base": 100.0},
    "normalized-attention": {},
    "differential": {"depth": 0},
    "softplus-attention": {"power": 3},
    "rnope": {"layer": 0, "window": 4},
}


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_query_that_sees_no_key_gets_zero_and_sends_no_gradient(name, dtype):
    module = nk.create(name, DIM, heads=HEADS, **BLIND[name]).to(dtype)
    wide = {"value": 2 * DIM, "key_heads": 2 * HEADS} if name == "differential" else {}
    q, k, v = (x.to(dtype).requires_grad_() for x in triple(keys=T, **wide))
    mask = mask_with_a_blind_row(keys=T)
    y = module(q, k, v, mask)
    assert (y[0, :, 2] == 0).all()
    y[0, :, 2].sum().backward()
    for x in (q, k, v):
        assert (x.grad == 0).all()


@pytest.mark.parametrize("name", BLIND)
def test_a_mask_that_does_not_fit_is_named(name):
    module = nk.create(name, DIM, heads=HEADS, **BLIND[name])
    wide = {"value": 2 * DIM, "key_heads": 2 * HEADS} if name == "differential" else {}
    q, k, v = (x.float() for x in triple(keys=T, **wide))
    with pytest.raises(TypeError, match="mask must be a boolean"):
        module(q, k, v, torch.zeros(N, HEADS, T, T))
    with pytest.raises(ValueError, match="mask must broadcast"):
        module(q, k, v, torch.ones(N, HEADS, T, T + 1, dtype=torch.bool))
