"""The linear-time cores: against the equations in T x T, against their recurrent step, and linear in memory."""

import copy
import math

import pytest
import torch

import normkit as nk
from normkit.attention import softmax_free
from normkit.attention._scan import CHUNK, _gated_scan, _in_parts, _of_any_length, _scan, gated_scan, scan
from normkit.contract import subject
from processes import over_processes

DIM, HEADS, LONG = 4, 2, 2 * CHUNK + 13
CAUSAL = {
    "flow": ("flow-attention", {"causal": True, "clamp": 10.0}, 0),
    "transnormer": ("transnormer", {"causal": True, "norm": "rms"}, 0),
    "transnormer-softmax": ("transnormer", {"causal": True, "block": 16, "softmax": True}, 0),
    "transnormer-relu": ("transnormer", {"causal": True, "block": 16, "activation": "relu"}, 0),
    "lightning": ("lightning", {}, 0),
    "lightning-lrpe": ("lightning", {"lrpe": True, "layer": 3}, 1),
    "gated-linear": ("gated-linear", {"eps": 0.0}, 2),
    "gated-linear-rms": ("gated-linear", {"eps": 0.0, "norm": "rmsnorm"}, 2),
    "liger": ("liger-attention", {"window": 20}, 0),
    "liger-itself": ("liger-attention", {"window": 0, "rope_base": None, "ratio": 0.3}, 0),
}
WHOLE = {
    "galerkin": ("galerkin", {"norm": "instance"}, 0),
    "flow-whole": ("flow-attention", {}, 0),
    "norm-aware-linear": ("norm-aware-linear", {}, 0),
    "transnormer-whole": ("transnormer", {}, 0),
    "transnormer-relu-whole": ("transnormer", {"block": 16, "activation": "relu"}, 0),
    "transnormer-softmax-whole": ("transnormer", {"block": 16, "softmax": True}, 0),
}
RECURRENT = {
    **CAUSAL,
    "rnope": ("rnope", {"layer": 0, "window": 20}, 0),
    "rnope-wide": ("rnope", {"layer": 0, "window": CHUNK + 9}, 0),
    "rnope-full": ("rnope", {"layer": 3}, 0),
    "softplus": ("softplus-attention", {"power": 3}, 0),
}
ALL = {**CAUSAL, **WHOLE}
TOLERANCE = {
    torch.float64: {},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7},
}  # of a unit: single's error may flip one
close = torch.testing.assert_close


def build(case):
    name, arguments, _ = {**ALL, **RECURRENT}[case]
    return nk.create(name, DIM, heads=HEADS, dtype=torch.float64, **arguments)


def draw(case, length=LONG, batch=2):
    generator = torch.Generator().manual_seed(length)
    shape = (3 + {**ALL, **RECURRENT}[case][2], batch, HEADS, length, DIM)
    return list(torch.randn(shape, generator=generator, dtype=torch.float64).unbind(0))


def steps(core, inputs):
    """Run the recurrent form; lightning takes its gate after the state."""
    given, state = [], None
    for token in zip(*(x.unbind(2) for x in inputs), strict=True):
        if nk.card("lightning").entry is type(core):
            y, state = core.step(*token[:3], state, *token[3:])
        else:
            y, state = core.step(*token, state)
        given.append(y)
    return torch.stack(given, 2), state


@pytest.mark.parametrize("case", RECURRENT)
def test_the_step_equals_the_parallel_form(case):
    core, inputs = build(case), draw(case)
    y, state = steps(core, inputs)
    close(y, core(*inputs))
    assert all(part.shape[0] == 2 for part in state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", RECURRENT)
def test_a_sequence_may_be_cut_anywhere(case, dtype):
    core, inputs = build(case), [x.to(dtype) for x in draw(case)]
    core = core if dtype is torch.float64 else core.float()
    whole = core(*inputs)
    state, given = None, []
    for part in torch.arange(LONG).split([0, CHUNK, 0, 5, LONG - CHUNK - 6, 1]):
        y, state = core.prefill(*(x[:, :, part] for x in inputs), state=state)
        given.append(y)
        assert y.dtype == dtype
    close(torch.cat(given, 2), whole, **TOLERANCE[dtype])


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, LONG])
@pytest.mark.parametrize("kind", ["plain", "decayed", "key gates", "value gates", "both"])
def test_chunks_of_which_the_number_is_not_known_give_the_same(kind, length):
    q, k, v, a, b = torch.randn(5, 2, HEADS, length, DIM, dtype=torch.float64).unbind(0)
    state = torch.randn(2, HEADS, DIM, DIM, dtype=torch.float64)
    slope = torch.tensor([[[30.0]], [[0.1]]], dtype=torch.float64) if kind == "decayed" else None
    named = {"key gates": a, "value gates": b}
    gates = [g.sigmoid().log() if kind in (name, "both") else None for name, g in named.items()]
    run, inputs = (_scan, (q, k, v)) if kind in ("plain", "decayed") else (_gated_scan, (q, k, v, *gates))
    for before in (None, state):
        close(_of_any_length(run, inputs, slope, before, length), _in_parts(run, inputs, slope, before))


@pytest.mark.parametrize("case", CAUSAL)
def test_a_core_with_no_branch_on_the_length_gives_the_same(case, monkeypatch):
    core, inputs = build(case), draw(case)
    want = core(*inputs)
    for module in ("_scan", "_window"):
        monkeypatch.setattr(f"normkit.attention.{module}.unknown", lambda length: True)
    close(core(*inputs), want)


def test_a_linear_core_is_exported_for_any_length(monkeypatch):
    monkeypatch.setattr("normkit.attention._scan.ROUNDS", 4)  # enough for 16 chunks, and soon exported
    core, free = nk.create("lightning", DIM, heads=HEADS), {2: torch.export.Dim("T", max=5 * LONG)}
    exported = subject.export(core, torch.randn(3, 1, HEADS, 13, DIM).unbind(0), (free,) * 3).module()
    for length in (2, CHUNK, LONG):
        inputs = torch.randn(3, 1, HEADS, length, DIM).unbind(0)
        close(exported(*inputs), core(*inputs))


@pytest.mark.parametrize("norm", ["layernorm", None])
def test_a_step_of_gated_linear_is_the_last_token_of_its_prefix(norm):
    core = nk.create("gated-linear", DIM, heads=HEADS, norm=norm, dtype=torch.float64)
    inputs = draw("gated-linear", 9)
    y, _ = steps(core, inputs)
    for t in range(9):
        close(y[:, :, t], core(*(x[:, :, : t + 1] for x in inputs))[:, :, t])


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_small_eps_hides_the_largest_key_of_gated_linear(norm):
    inputs = torch.randn(5, 1, HEADS, 200, 64, generator=torch.Generator().manual_seed(0))
    for eps, shown in ((1e-5, True), (1e-12, False)):
        core = nk.create("gated-linear", 64, heads=HEADS, norm=norm, eps=eps)
        later = inputs.clone()
        later[1, :, :, 150] *= 3
        moved = (core(*later) - core(*inputs))[:, :, :150].square().mean().sqrt()
        away = (steps(core, inputs[:, :, :, :40])[0] - core(*inputs)[:, :, :40]).square().mean().sqrt()
        assert (moved > 0.1) == (away > 0.01) == shown
        assert shown or max(moved, away) < 1e-5


@pytest.mark.parametrize("case", CAUSAL)
def test_a_step_of_half_precision_keeps_its_state_in_single(case):
    core, inputs = build(case).float(), [x.bfloat16() for x in draw(case, 3)]
    y, state = steps(core, inputs)
    assert y.dtype == torch.bfloat16
    assert all(part.dtype == torch.float32 for part in state if part.is_floating_point())


@pytest.mark.parametrize("case", RECURRENT)
def test_no_token_sees_the_future(case):
    core, inputs = build(case), draw(case)
    later = [torch.cat([x[:, :, :70], x[:, :, 70:].roll(1, 2)], 2) for x in inputs]
    close(core(*later)[:, :, :70], core(*inputs)[:, :, :70])


@pytest.mark.parametrize("case", RECURRENT)
def test_a_state_of_other_samples_or_of_another_kind_is_refused(case):
    core, inputs = build(case), draw(case, 3)
    _, state = core.prefill(*inputs)
    fewer = [x[:1] for x in inputs]
    with pytest.raises(ValueError, match="state is of 2 samples, but q has 1"):
        core.prefill(*fewer, state=state)
    with pytest.raises(TypeError, match="state must be what"):
        core.prefill(*inputs, state=tuple(state))
    with pytest.raises(ValueError, match="state is on meta, but q is on cpu"):
        core.prefill(*inputs, state=type(state)(*(part.to("meta") for part in state)))


def test_a_step_without_a_causal_form_is_refused():
    token = torch.zeros(2, HEADS, DIM)
    for case in ("flow-whole", "transnormer-whole"):
        with pytest.raises(ValueError, match="causal=True"):
            build(case).step(token, token, token)
    with pytest.raises(ValueError, match="see the future"):
        nk.create("transnormer", DIM, heads=HEADS, causal=True, block=4).step(token, token, token)
    with pytest.raises(ValueError, match=r"k must have shape \(2, 2, 4\)"):
        build("lightning").step(token, token[..., :2], token)


# ---- the equations, with every pair of tokens ----


def past(length):
    t = torch.arange(length)
    return t[:, None] - t


def weighted(weights, v):
    """Sum over the keys of weights (..., T, S) with values."""
    return torch.einsum("nhts,nhsd->nhtd", weights, v)


def lightning(q, k, v, slopes, layer=0, layers=12):
    q, k = (x / (1 + (-x).exp()) for x in (q, k))
    s = torch.tensor(slopes, dtype=q.dtype).view(-1, 1, 1) * (1 - layer / (layers - 1) + 1e-5)
    lag = past(q.shape[2])
    weights = torch.einsum("nhtd,nhsd->nhts", q, k) * torch.where(lag >= 0, (-s * lag.clamp(min=0)).exp(), 0)
    o = weighted(weights, v)
    return o / (o.square().mean((1, 3), keepdim=True) + 1e-6).sqrt()


def gated_linear(q, k, v, gate, refine):
    q = (q - q.amax(-1, keepdim=True)).exp()
    k = (k - k.amax((2, 3), keepdim=True)).exp()
    g, r = gate.sigmoid(), refine.sigmoid()
    forget = (1 - r) * g**2 + r * (1 - (1 - g) ** 2)
    state, given = torch.zeros(*q.shape[:2], DIM, DIM, dtype=q.dtype), []
    for t in range(q.shape[2]):
        state = forget[:, :, t, :, None] * state + torch.einsum("nhv,nhk->nhvk", v[:, :, t], k[:, :, t])
        given.append(torch.einsum("nhvk,nhk->nhv", state, q[:, :, t]))
    h = torch.stack(given, 2) / (math.e * math.sqrt(DIM * (math.e**2 - 1)))
    h = h - h.mean(-1, keepdim=True)
    return h / h.square().mean(-1, keepdim=True).sqrt()


def liger(q, k, v, window=20):
    log_gate = k.sigmoid().log().cumsum(2) / 16
    lag = past(q.shape[2])
    decay = (log_gate[:, :, :, None] - log_gate[:, :, None]).exp()
    weights = torch.einsum("nhti,nhsi,nhtsi->nhts", q.softmax(-1), k.softmax(-1), decay)
    o = weighted(torch.where(lag >= 0, weights, 0), v)
    turned = [x[..., : DIM // 2] + 1j * x[..., DIM // 2 :] for x in (q, k)]
    angle = torch.arange(q.shape[2])[:, None] * 10000.0 ** (-2 * torch.arange(DIM // 2, dtype=q.dtype) / DIM)
    a, b = (x * torch.exp(1j * angle) for x in turned)
    scores = torch.einsum("nhtd,nhsd->nhts", a, b.conj()).real / math.sqrt(DIM)
    p = scores.masked_fill((lag < 0) | (lag > window), -math.inf).softmax(-1)
    return 0.5 * weighted(p, v) + 0.5 * o


def flow(q, k, v, clamp=10.0, e=1e-6):
    q, k = q.sigmoid(), k.sigmoid()
    lower = (past(q.shape[2]) >= 0).to(q.dtype)

    def running(x):
        return lower @ x

    def flows(x, total):
        return ((x + e) * (total + e)).sum(-1, keepdim=True)

    n = lower.sum(-1, keepdim=True)
    incoming, outgoing = n / flows(q, running(k)), n / flows(k, running(q))
    conserved = flows(q, running(outgoing * k)) / n
    competing = (flows(k, running(incoming * q)) / n).clamp(-clamp, clamp)
    won = n * competing.exp() / running(competing.exp())
    weights = torch.einsum("nhtd,nhsd->nhts", incoming / n * q, k) * lower
    return conserved.sigmoid() * weighted(weights, won * v)


def transnormer(q, k, v):
    q, k = (torch.where(x > 0, 1 + x, x.exp()) for x in (q, k))
    o = weighted(torch.einsum("nhtd,nhsd->nhts", q, k).tril(), v)
    return o / (o.square().mean((1, 3), keepdim=True).sqrt() + 1e-8)


EQUATIONS = {
    "lightning": lambda *inputs: lightning(*inputs, slopes=[2**-4, 2**-8]),
    "gated-linear": gated_linear,
    "liger": liger,
    "flow": flow,
    "transnormer": transnormer,
}


@pytest.mark.parametrize("length", [1, CHUNK, LONG])
@pytest.mark.parametrize("case", EQUATIONS)
def test_agrees_with_the_equations_forward_and_backward(case, length):
    core, inputs = build(case), [x.requires_grad_() for x in draw(case, length)]
    y, want = core(*inputs), EQUATIONS[case](*inputs)
    if case == "gated-linear" and length == 1:
        y, want = y[..., :0], want[..., :0]  # keys of one token cancel exactly, up to a rounding that eps=0 blows up
    close(y, want)
    sent = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    for a, b in zip(torch.autograd.grad(y, inputs, sent), torch.autograd.grad(want, inputs, sent), strict=True):
        close(a, b, rtol=1e-6, atol=1e-8)


def norm_of_heads(o, inside=0.0, outside=0.0):
    return o / ((o.square().mean((1, 3), keepdim=True) + inside).sqrt() + outside)


ACTIVATED = {
    "1+elu": lambda x: torch.where(x > 0, 1 + x, x.exp()),
    "elu": lambda x: torch.where(x > 0, x, x.exp() - 1),
    "relu": lambda x: x * (x > 0),
    "silu": lambda x: x / (1 + (-x).exp()),
    None: lambda x: x,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ACTIVATED)
def test_transnormer_takes_each_activation_linear_and_in_blocks(activation, causal):
    q, k, v = draw("transnormer", 23)
    act, options = ACTIVATED[activation], {"heads": HEADS, "causal": causal, "activation": activation}
    lag = past(23)
    weights = torch.einsum("nhtd,nhsd->nhts", act(q), act(k)) * ((lag >= 0) | (not causal))
    linear = nk.create("transnormer", DIM, eps=0.1, **options)
    close(linear(q, k, v), norm_of_heads(weighted(weights, v), outside=0.1))
    block = torch.arange(23) // 5
    scores = torch.einsum("nhtd,nhsd->nhts", q, k) / math.sqrt(DIM) * ((lag >= 0) | (not causal))
    weights = act(scores) * (block[:, None] == block)
    blocks = nk.create("transnormer", DIM, block=5, **options)
    close(blocks(q, k, v), norm_of_heads(weighted(weights, v), outside=1e-8))


@pytest.mark.parametrize("activation", ACTIVATED)
def test_lightning_takes_each_activation_and_more_heads_than_a_power_of_two(activation):
    q, k, v, gate = torch.randn(4, 2, 3, 40, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    act = ACTIVATED[activation]
    slopes = torch.tensor([2**-4, 2**-8, 2**-2], dtype=torch.float64) * (1 - 2 / 4 + 1e-5)
    theta = (10000 ** (-2 / (3 * DIM) * torch.arange(3 * DIM, dtype=torch.float64))).view(3, 1, 1, DIM)
    lag = past(40)
    scores = (act(q).unsqueeze(3) * act(k).unsqueeze(2) * (lag.unsqueeze(-1) * theta).cos()).sum(-1)
    weights = scores * torch.where(lag >= 0, (-slopes.view(3, 1, 1) * lag).exp(), 0)
    core = nk.create("lightning", DIM, heads=3, layer=2, layers=5, activation=activation, lrpe=True, eps=0.3)
    close(core.double()(q, k, v, gate), norm_of_heads(weighted(weights, v), inside=0.3) * gate, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["layer", "instance", None])
def test_galerkin_normalizes_keys_and_values_over_features_or_tokens(norm):
    q, k, v = draw("galerkin", 9)
    pos = torch.randn(2, 9, 2, dtype=torch.float64)
    core = nk.create("galerkin", DIM, heads=HEADS, norm=norm, eps=0.2, pos_dim=2, dtype=torch.float64)
    for name, parameter in core.named_parameters():
        torch.nn.init.normal_(parameter, 1.0, generator=torch.Generator().manual_seed(len(name)))
    parts, axis = {"key_norm": k, "value_norm": v}, -1 if norm == "layer" else 2
    for name in parts if norm is not None else ():
        x, gain, shift = parts[name], core.get_parameter(f"{name}.weight"), core.get_parameter(f"{name}.bias")
        deviation = (x.var(axis, correction=0, keepdim=True) + 0.2).sqrt()
        parts[name] = (x - x.mean(axis, keepdim=True)) / deviation * gain[:, None] + shift[:, None]
    there = pos[:, None].expand(2, HEADS, 9, 2)
    a, b, c = (torch.cat([there, x], -1) for x in (q, *parts.values()))
    close(core(q, k, v, pos), weighted(torch.einsum("nhtd,nhsd->nhts", a, b) / 9, c))


def test_liger_takes_any_root_share_and_base():
    q, k, v = draw("liger", 30)
    with_window = nk.create("liger-attention", DIM, heads=HEADS, window=4, ratio=1.0, rope_base=None)
    lag = past(30)
    scores = torch.einsum("nhtd,nhsd->nhts", q, k) / 2
    close(with_window(q, k, v), weighted(scores.masked_fill((lag < 0) | (lag > 4), -math.inf).softmax(-1), v))
    core = nk.create("liger-attention", DIM, heads=HEADS, window=4, ratio=-0.5, gate_normalizer=2.5, rope_base=None)
    log_gate = k.sigmoid().log().cumsum(2) / 2.5
    decay = (log_gate[:, :, :, None] - log_gate[:, :, None]).exp()
    weights = torch.einsum("nhti,nhsi,nhtsi->nhts", q.softmax(-1), k.softmax(-1), decay)
    close(core(q, k, v), -0.5 * with_window(q, k, v) + 1.5 * weighted(torch.where(lag >= 0, weights, 0), v))


def test_the_slopes_are_those_of_alibi():
    from normkit.attention.lightning import alibi_slopes

    one = torch.ones(1, dtype=torch.float64)
    close(alibi_slopes(8, one), 2.0 ** -torch.arange(1, 9, dtype=torch.float64))
    want = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    close(alibi_slopes(6, one), torch.tensor(want, dtype=torch.float64))


# ---- the scan ----


@pytest.mark.parametrize("features", [1, 3], ids=["heads' decay", "features' decay"])
def test_gates_may_close_and_stay_open(features):
    q, k, v = torch.randn(3, 1, LONG, 3, dtype=torch.float64).unbind(0)
    gate = torch.linspace(-1e5, 0, LONG, dtype=torch.float64)[torch.randperm(LONG)].view(1, -1, 1)
    gate = gate.expand(-1, -1, features).clone()
    gate[:, 5], gate[:, 80] = -math.inf, 0
    state, want = torch.zeros(1, 3, 3, dtype=torch.float64), []
    for t in range(LONG):
        state = state * gate[:, t].exp().unsqueeze(-1) + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        want.append((q[:, t].unsqueeze(-2) @ state).squeeze(-2))
    gate.requires_grad_()
    y, _ = gated_scan(q, k, v, key_gate=gate)
    close(y, torch.stack(want, 1))
    assert torch.isfinite(torch.autograd.grad(y.sum(), gate)[0]).all()


def test_single_precision_keeps_its_digits_over_long_sequences():
    q, k, v = torch.rand(3, 2, 4000, 8, dtype=torch.float64).unbind(0)
    gate = -torch.rand(2, 4000, 8, dtype=torch.float64) * 20
    for run in (
        lambda q, k, v: scan(q, k, v)[0],
        lambda q, k, v: scan(q, k, v, torch.full((1, 1), 0.7).to(q))[0],
        lambda *x: gated_scan(*x, gate.to(x[0]))[0],
    ):
        want = run(q, k, v)
        error = (run(q.float(), k.float(), v.float()) - want).abs() / want.abs()
        assert error.max() < 2e-5  # half the rounding of 4000 sums of one sign is 2e-4; pairwise sums do far better


# ---- memory ----


def saved(case, length):
    """How many numbers the backward pass keeps, and the largest tensor among them."""
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        held.append(x)
        return x

    held: list[torch.Tensor] = []
    inputs = [x.requires_grad_() for x in draw(case, length, batch=1)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        build(case)(*inputs)
    return sum(kept.values()), max(kept.values())


@pytest.mark.parametrize("case", ALL)
def test_what_the_backward_pass_keeps_grows_with_the_length(case):
    (some, _), (more, largest) = saved(case, 512), saved(case, 1024)
    assert more < 2.05 * some
    assert largest < 1024 * 1024 / 2


# ---- masks ----


def masked(length, hidden, side):
    shown, not_shown = torch.ones(2, 1, 1, length, dtype=torch.bool), torch.zeros(2, 1, 1, hidden, dtype=torch.bool)
    return torch.cat([not_shown, shown] if side == "left" else [shown, not_shown], -1)


IN_BLOCKS = {case for case, (_, arguments, _) in ALL.items() if "block" in arguments}


@pytest.mark.parametrize(
    "case, side", [*((case, "right") for case in ALL), *((case, "left") for case in sorted(set(ALL) - IN_BLOCKS))]
)
def test_padding_changes_nothing(case, side):
    core, inputs, length, hidden = build(case), draw(case, 40), 40, 30
    mask = masked(length, hidden, side)
    padded = []
    for place, x in enumerate(inputs):  # a query of NaN is its own; a hidden key or value of NaN touches no one
        junk = torch.full((2, HEADS, hidden, DIM), math.nan if place in (1, 2) else 9.0, dtype=torch.float64)
        padded.append(torch.cat([junk, x] if side == "left" else [x, junk], 2).requires_grad_())
    extra = {"query_mask": mask.mT} if case == "flow-whole" else {}
    y = core(*padded, mask=mask, **extra)
    kept = slice(hidden, None) if side == "left" else slice(0, length)
    close(y[:, :, kept], core(*inputs))
    gradients = torch.autograd.grad(y[:, :, kept].square().sum(), padded[1:3])
    for gradient in gradients:
        assert torch.isfinite(gradient[:, :, kept]).all()


@pytest.mark.parametrize("case", ALL)
def test_a_mask_of_single_pairs_is_refused(case):
    inputs = draw(case, 5)
    with pytest.raises(ValueError, match="mask must hide a key from all queries alike"):
        build(case)(*inputs, mask=torch.ones(5, 5, dtype=torch.bool))


@pytest.mark.parametrize("case", ALL)
def test_where_nothing_is_seen_zero_is_given(case):
    inputs = [x.requires_grad_() for x in draw(case, 5)]
    y = build(case)(*inputs, mask=torch.zeros(5, dtype=torch.bool))
    for gradient in torch.autograd.grad(y.sum(), inputs):
        assert torch.isfinite(gradient).all()
    close(y, torch.zeros_like(y))


@pytest.mark.parametrize(
    "name, arguments",
    [("galerkin", {}), ("norm-aware-linear", {}), ("softmax-free", {"size": (4, 4), "ratio": 2})],
)
def test_causal_is_refused_with_the_cores_that_can(name, arguments):
    with pytest.raises(ValueError, match=r"causal must be False; .*flow-attention.*lightning.*softmax.*transnormer"):
        nk.create(name, DIM, heads=HEADS, causal=True, **arguments)
    with pytest.raises(ValueError, match=r"causal must be True; .*galerkin"):
        nk.create("lightning", DIM, heads=HEADS, causal=False)


# ---- the rest ----


def test_a_query_of_zeros_gives_zero():
    q, k, v = draw("norm-aware-linear", 6)
    q[:, :, 2] = 0
    q.requires_grad_()
    y = build("norm-aware-linear")(q, k, v)
    close(y[:, :, 2], torch.zeros_like(y[:, :, 2]))
    assert torch.isfinite(torch.autograd.grad(y.sum(), q)[0]).all()


def test_a_tiny_query_keeps_its_direction():
    q, k, v = (x.float() for x in draw("norm-aware-linear", 6))
    core = nk.create("norm-aware-linear", DIM, heads=HEADS, eps=0.0)
    close(core(q * 1e-30, k, v), core(q * 1e-10, k, v))


def test_softmax_free_refuses_a_mask():
    core = nk.create("softmax-free", DIM, heads=HEADS, size=(2, 2), ratio=2)
    q = torch.zeros(1, HEADS, 4, DIM)
    with pytest.raises(ValueError, match="mask must be None"):
        core(q, q, q, torch.ones(4, dtype=torch.bool))


def test_softmax_free_inverts_the_kernel_and_its_derivatives():
    from normkit.attention.softmax_free import RIDGE, _ridge_inverse

    z = torch.randn(5, 3, dtype=torch.float64)
    b = (-torch.cdist(z, z).square() / 2).exp().requires_grad_()
    got, want = _ridge_inverse(b, 40), torch.linalg.inv(b + RIDGE * torch.eye(5, dtype=b.dtype))
    weights = torch.linspace(-1, 1, 25, dtype=b.dtype).view(5, 5)
    for _ in range(3):
        close(got, want, rtol=1e-6, atol=1e-6)
        (got,) = torch.autograd.grad((got * weights).sum(), b, create_graph=True)
        (want,) = torch.autograd.grad((want * weights).sum(), b, create_graph=True)


def symmetric(x):
    torch.manual_seed(0)
    core = nk.create("softmax-free", DIM, heads=1, size=(4, 4), ratio=2, norm="symmetric", max_iter=2, sync=True)
    x = x.clone().requires_grad_()
    y = core.double()(x, x, x)
    y.square().sum().backward()
    return y.detach(), x.grad


def shard(x):
    return symmetric(x[:1] if torch.distributed.get_rank() == 0 else x[1:])


def test_symmetric_softmax_free_on_two_processes_equals_one(tmp_path):
    x = torch.randn(4, 1, 16, DIM, dtype=torch.float64)
    parts = over_processes(shard, 2, tmp_path, x)
    for got, want in zip(zip(*parts, strict=True), symmetric(x), strict=True):
        close(torch.cat(got), want)
    with pytest.raises(AssertionError):  # without the join the shards differ, after so few steps
        close(torch.cat([symmetric(sample)[0] for sample in x.split(1)]), symmetric(x)[0])


def test_polynormer_interleaves_its_heads():
    core = nk.create("polynormer", 6, heads=3, layers=1, shared=False, dtype=torch.float64)
    x = torch.randn(5, 6, dtype=torch.float64)
    layer, a = core.layers[0], torch.empty(5, 6, dtype=torch.float64)
    q, k, v = layer.query(x).sigmoid(), layer.key(x).sigmoid(), layer.value(x)
    for head in range(3):
        own = slice(head, None, 3)
        weights = q[:, own] @ k[:, own].T
        a[:, own] = weights / weights.sum(-1, keepdim=True) @ v[:, own]
    close(core(x), core.output(layer.norm(a) * (layer.hidden(x) + 0.5)).relu())


def of_far_nodes(core, x):
    x = x.detach().requires_grad_()
    y = core(x)
    y.square().sum().backward()
    return y.detach(), x.grad, core.layers[0].key.weight.grad


@pytest.mark.parametrize(("keys", "queries"), [((-60, -60), (0, 0)), ((-60, -60), (-60, -60)), ((0, -120), (-120, 0))])
def test_polynormer_averages_values_where_all_its_sigmoids_underflow(keys, queries):
    core = nk.create("polynormer", 6, layers=1, shared=False)
    x, layer = torch.randn(5, 6), core.layers[0]
    with torch.no_grad():
        layer.key.bias.copy_(torch.tensor(keys).repeat(3))
        layer.query.bias.copy_(torch.tensor(queries).repeat(3))
    exact, wide = copy.deepcopy(core).double(), x.double()
    for got, want in zip(of_far_nodes(core, x), of_far_nodes(exact, wide), strict=True):
        assert want.abs().max() > 0.01
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
    layer = exact.layers[0]
    weights = layer.query(wide).sigmoid() @ layer.key(wide).sigmoid().T
    a = layer.norm(weights / weights.sum(-1, keepdim=True) @ layer.value(wide))
    close(exact(wide), exact.output(a * (layer.hidden(wide) + 0.5)).relu())


def of_nodes(x):
    core = nk.create("polynormer", 4, heads=2, sync=True, dtype=torch.float64)
    torch.manual_seed(0)
    for parameter in core.parameters():
        torch.nn.init.normal_(parameter)
    return of_far_nodes(core, x)


def nodes_of_one(x):
    return of_nodes(x[:0] if torch.distributed.get_rank() == 0 else x)


def test_polynormer_takes_a_process_without_nodes(tmp_path):
    x = torch.randn(5, 4, dtype=torch.float64)
    parts = over_processes(nodes_of_one, 2, tmp_path, x)
    for (*_, none), got, want in zip(zip(*parts, strict=True), parts[1], of_nodes(x), strict=True):
        assert none.isfinite().all()
        close(got, want)


@pytest.mark.parametrize("name", ["gate", "refine"])
def test_a_gate_of_another_type_than_q_is_named(name):
    core, (q, k, v, gate, refine, *_) = subject.build("gated-linear"), subject.draw("gated-linear")
    gates = {"gate": gate, "refine": refine}
    gates[name] = gates[name].float()
    with pytest.raises(TypeError, match=f"GatedLinear: {name} is torch.float32, but q is torch.float64"):
        core(q, k, v, **gates)


@pytest.mark.parametrize(
    ("length", "size", "ratio"), [(16, (4, 4), 2), (64, (8, 8), 2), (196, (14, 14), 3), (7, (1, 7), 2)]
)
def test_a_grid_is_fitted_to_a_length(length, size, ratio):
    found = nk.card("softmax-free").entry.fitting(length)
    assert found == {"size": size, "ratio": ratio}


def test_no_kernel_of_softmax_free_is_above_that_of_a_token_with_itself():
    far = 1e3 * torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    found = softmax_free._kernel(far, far)
    assert (found <= 1).all()
    assert (found.diagonal() > 0).all()


@pytest.mark.parametrize("case", RECURRENT)
def test_second_derivatives_are_the_same_in_both_modes(case):
    core, inputs = build(case), draw(case, length=5, batch=1)

    def gradient(*inputs):
        return torch.func.grad(lambda *x: core(*x).square().sum(), argnums=tuple(range(len(inputs))))(*inputs)

    along = [x.cos() for x in inputs]
    (_, forward), (_, backward) = (
        torch.func.jvp(gradient, tuple(inputs), tuple(along)),
        torch.func.vjp(gradient, *inputs),
    )
    close(forward, backward(tuple(along)))  # since a Hessian is symmetric
