"""Residual streams that are wider than one vector: in whole models, against their equations, and what they refuse."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit import ops
from normkit.residual.streams import collapse, expand
from processes import mesh_of, over_processes

DOUBLE = torch.float64
SIZES = {"dim": 8, "depth": 3, "heads": 2, "hidden": 12}
TOKENS = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0))
WIDE = [
    "siamese-norm",
    "attention-residuals",
    "attention-residuals:block_size=3",
    "hyper-connections",
    "hyper-connections:dynamic=False",
    "mhc",
    "mhc-lite:streams=3",
]
LAYERS = ["altup:streams=3", "altup:streams=2,rank=3", "laurel:rank=3"]  # what is wired across a whole layer
OTHERS = ["gpas", "gpas:placement=peri-norm", "gpas:placement=deepnorm"]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def shaken(module):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def decoder(placement, **options):
    torch.manual_seed(0)
    return shaken(nk.Decoder(vocab=11, **{**SIZES, **options}, placement=placement).double())


def block(name, dim=6, **options):
    torch.manual_seed(0)
    sublayers = {part: nn.Linear(dim, dim, bias=False) for part in ("attention", "feedforward")}
    return shaken(nk.create(name, dim=dim, **options, **sublayers).double())


# whole models


@pytest.mark.parametrize("placement", [*WIDE, *LAYERS, *OTHERS])
def test_a_cache_gives_the_numbers_of_the_full_pass_and_so_does_generation(placement):
    model = decoder(placement)
    cache = model.empty_cache()
    parts = [model(part, cache=cache) for part in TOKENS.split([2, 1, 3], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(TOKENS))
    want = model.generate(TOKENS, 3, temperature=0, cached=False)
    assert torch.equal(model.generate(TOKENS, 3, temperature=0), want)


@pytest.mark.parametrize("placement", [*WIDE, *LAYERS, *OTHERS])
def test_one_graph_and_checkpoints_of_layers_change_nothing(placement):
    model = decoder(placement, depth=2)  # the first and the last; those between are traced as these are
    want = model(TOKENS)
    want.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    # what the first sublayer of attention residuals chooses by has no effect: it has one source
    idle = {name for name, gradient in gradients.items() if not gradient.abs().max() > 0}
    assert idle <= {"layers.0.attention_query", "layers.0.attention_source_norm.weight"}
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(TOKENS), want)
    model.zero_grad()
    for layer in model.layers:
        plain = layer.forward
        layer.forward = lambda *given, plain=plain: checkpoint(plain, *given, use_reentrant=False)
    model(TOKENS).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("placement", [*WIDE, *LAYERS])
def test_parameters_may_be_of_another_type_than_the_streams(placement, dtype):
    around = shaken(nk.Placement(placement, 8, layer=1, depth=4).to(dtype))
    number = around.place.options.get("streams")
    x = around.form.expand(randn(2, 5, 8), around.place) if number is None else randn(2, 5, number, 8)
    want = copy.deepcopy(around).double()(x, torch.tanh)
    torch.testing.assert_close(around(x, torch.tanh), want, rtol=1e-6, atol=1e-6)
    assert around.double()(tree_map(lambda part: part.to(dtype), x), torch.tanh)[0].dtype is dtype


@pytest.mark.parametrize("placement", [*WIDE, *LAYERS])
def test_a_copy_of_a_model_gives_the_same_bits(placement):
    model = decoder(placement)
    other = decoder(placement)
    other.load_state_dict(model.state_dict())
    for same in (copy.deepcopy(model), other):
        assert torch.equal(same(TOKENS), model(TOKENS))


@pytest.mark.parametrize("placement", ["hyper-connections", "mhc", "mhc-lite", "attention-residuals"])
def test_what_connects_a_sublayer_starts_as_published_whatever_the_matrices_start_with(placement):
    def connections(**options):
        torch.manual_seed(0)
        layers = nk.Decoder(vocab=11, **SIZES, placement=placement, **options).layers
        return {name: p for name, p in layers.named_parameters() if "_connection." in name or "_query" in name}

    plain, drawn = connections(), connections(std=3.0)
    assert plain.keys() == drawn.keys()
    for name, parameter in drawn.items():
        assert parameter.std(correction=0) < 0.03 or torch.equal(parameter, plain[name]), name


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("dynamic", [True, False])
def test_hyper_connections_begin_as_pre_norm(streams, dynamic):
    options = {"streams": streams, "dynamic": dynamic}
    torch.manual_seed(0)
    model = nk.Encoder(vocab=11, **SIZES, placement="hyper-connections", final_norm=False, **options).double()
    pre = nk.Encoder(vocab=11, **SIZES, placement="pre-norm", final_norm=False).double()
    state = model.state_dict()
    pre.load_state_dict({name: state[name] for name in pre.state_dict()})
    torch.testing.assert_close(model(TOKENS), streams * pre(TOKENS))


def test_streams_begin_as_copies_and_end_as_their_sum():
    x = randn(2, 3, 6)
    torch.testing.assert_close(collapse(expand(x, 4)), 4 * x)
    with pytest.raises(ValueError, match="streams must be"):
        expand(x, 0)
    with pytest.raises(ValueError, match=r"streams, dim\).*\(6,\)"):
        collapse(x[0, 0])


# equations


def read_and_write(h, read, mix, write, norm, f):
    u = sum(read[..., s, None] * h[..., s, :] for s in range(h.shape[-2]))
    y = f(norm(u))
    targets = [
        sum(mix[..., s, t, None] * h[..., s, :] for s in range(h.shape[-2])) + write[..., t, None] * y
        for t in range(h.shape[-2])
    ]
    return torch.stack(targets, -2)


@pytest.mark.parametrize("iterations", [1, 3])
def test_mhc_of_three_streams_is_its_equations(iterations):
    made, h = block("mhc", streams=3, iterations=iterations, eps=1e-3), randn(2, 3, 6)
    want = h
    for part, norm, f in (
        (made.attention_connection, made.attention_norm, made.attention),
        (made.feedforward_connection, made.feedforward_norm, made.feedforward),
    ):
        flat = want.flatten(-2)
        a = flat / (flat.square().mean(-1, keepdim=True) + 1e-6).sqrt() @ part.weight.T
        read = torch.sigmoid(part.scale[0] * a[:, :3] + part.bias[:3]) + 1e-3
        write = 2 * torch.sigmoid(part.scale[1] * a[:, 3:6] + part.bias[3:6])
        m = torch.softmax((part.scale[2] * a[:, 6:] + part.bias[6:]).view(-1, 3, 3), -1) + 1e-3
        m = m / (m.sum(1, keepdim=True) + 1e-3)
        for _ in range(iterations - 1):
            m = m / (m.sum(2, keepdim=True) + 1e-3)
            m = m / (m.sum(1, keepdim=True) + 1e-3)
        want = read_and_write(want, read, m, write, norm, f)
    torch.testing.assert_close(made(h), want)


def test_mhc_without_iterations_leaves_the_streams_apart():
    made, h = block("mhc", streams=3, iterations=0, eps=1e-3, magnitude=1.5, write_eps=1e-2), randn(2, 3, 6)
    want = h
    for part, norm, f in (
        (made.attention_connection, made.attention_norm, made.attention),
        (made.feedforward_connection, made.feedforward_norm, made.feedforward),
    ):
        flat = want.flatten(-2)
        a = flat / (flat.square().mean(-1, keepdim=True) + 1e-6).sqrt() @ part.weight.T
        read = torch.sigmoid(part.scale[0] * a[:, :3] + part.bias[:3]) + 1e-3
        write = 1.5 * torch.sigmoid(part.scale[1] * a[:, 3:] + part.bias[3:]) + 1e-2
        want = read_and_write(want, read, torch.eye(3, dtype=DOUBLE).expand(2, 3, 3), write, norm, f)
    torch.testing.assert_close(made(h), want)


def test_the_gradient_of_sinkhorn_goes_through_all_iterations():
    scores = randn(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: ops.sinkhorn(s, 4, 1e-2), scores)
    assert torch.autograd.gradgradcheck(lambda s: ops.sinkhorn(s, 2, 1e-2), scores)
    m = ops.sinkhorn(5 * scores, 1, 0.0)
    torch.testing.assert_close(m.sum(-2), torch.ones(2, 3, dtype=DOUBLE))
    assert (m.sum(-1) - 1).abs().max() > 0.1  # one iteration knows no rows
    torch.testing.assert_close(ops.sinkhorn(scores, 200, 0.0).sum(-1), torch.ones(2, 3, dtype=DOUBLE))


def test_a_product_of_mixings_over_depth_neither_grows_nor_vanishes():
    def sums(matrices):
        product = torch.linalg.multi_dot(list(matrices))
        return torch.cat([product.sum(0), product.sum(1)])

    scores = randn(64, 4, 4)
    assert (sums(ops.sinkhorn(scores)) - 1).abs().max() < 0.05
    assert sums(torch.eye(4, dtype=DOUBLE) + 0.3 * scores).abs().max() > 100


def test_mhc_lite_mixes_by_permutations_that_move_a_stream_to_where_they_say():
    made, h = block("mhc-lite", streams=3), randn(2, 3, 6)
    part = made.attention_connection
    for index, p in enumerate(itertools.permutations(range(3))):
        with torch.no_grad():
            part.weight.zero_()
            part.bias[6:] = torch.where(torch.arange(6) == index, 0.0, -80.0)
        _, mix, _ = part(h)
        moved = mix.mT @ h
        for s in range(3):
            torch.testing.assert_close(moved[:, p[s]], h[:, s])
    with torch.no_grad():
        part.weight.normal_()
        part.scale.fill_(3.0)
    _, mix, _ = part(h)
    for axis in (-1, -2):
        torch.testing.assert_close(mix.sum(axis), torch.ones(2, 3, dtype=DOUBLE), rtol=1e-14, atol=1e-14)


def test_mhc_lite_favours_the_stream_of_the_sublayers_number():
    torch.manual_seed(0)
    made = nk.MHCLite(dim=4, layer=3, depth=4, streams=4, attention=nn.Identity(), feedforward=nn.Identity())
    for part, stream in ((made.attention_connection, 2), (made.feedforward_connection, 3)):
        assert part.bias[:4].argmax() == part.bias[4:8].argmax() == stream
        assert part.bias[8] == 0
        assert (part.bias[9:] == -8).all()
        torch.testing.assert_close(
            part(torch.randn(4, 4))[1][0, 0].item(), (1 + 5 * math.exp(-8)) / (1 + 23 * math.exp(-8))
        )


def sublayers(layer, angles):
    return ("attention", lambda h: layer.attention(h, angles=angles)), ("feedforward", layer.feedforward)


def test_siamese_norm_in_a_decoder_is_its_equations():
    model = decoder("siamese-norm")
    p = y = model.embedding(TOKENS)
    angles = model._angles(torch.arange(6))
    for index, layer in enumerate(model.layers):
        for name, f in (
            ("attention", lambda h, a=layer: a.attention(h, angles=angles)),
            ("feedforward", layer.feedforward),
        ):
            post, identity, norm = (getattr(layer, f"{name}_{part}") for part in ("post_norm", "identity_norm", "norm"))
            p = post(p)
            d = f(norm(p + identity(y)))
            p, y = p + d / math.sqrt(2 * (index + 1)), y + d
    x = model.norm(model.collapse.post_norm(p) + model.collapse.identity_norm(y))
    torch.testing.assert_close(model(TOKENS), x @ model.embedding.weight.T)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_attention_residuals_in_a_decoder_are_their_equations(size):
    model = decoder("attention-residuals", block_size=size)
    outputs, angles = [model.embedding(TOKENS)], model._angles(torch.arange(6))

    def mixed(sources, query, weight):
        shares = torch.softmax(torch.stack([F.rms_norm(v, (8,), weight, 1e-6) @ query for v in sources]), 0)
        return sum(share[..., None] * v for share, v in zip(shares, sources, strict=True))

    def sources():
        """The embedding, and the sums of the sublayers' outputs, ``size`` at a time."""
        return outputs[:1] + [sum(outputs[1:][at : at + size]) for at in range(0, len(outputs) - 1, size)]

    for layer in model.layers:
        for name, f in (
            ("attention", lambda h, a=layer: a.attention(h, angles=angles)),
            ("feedforward", layer.feedforward),
        ):
            query, weight = getattr(layer, f"{name}_query"), getattr(layer, f"{name}_source_norm").weight
            outputs.append(f(getattr(layer, f"{name}_norm")(mixed(sources(), query, weight))))
    x = model.norm(mixed(sources(), model.collapse.query, model.collapse.norm.weight))
    torch.testing.assert_close(model(TOKENS), x @ model.embedding.weight.T)


def test_the_size_of_a_source_does_not_change_its_share():
    made = shaken(nk.DepthAttention(6).double())
    sources = randn(3, 2, 6)
    larger = sources * torch.tensor([1.0, 1000.0, 1.0], dtype=DOUBLE)[:, None, None]
    scores = made.norm(sources) @ made.query
    shares = torch.softmax(scores, 0)[..., None]
    torch.testing.assert_close(made(larger), (shares * larger).sum(0), rtol=1e-4, atol=0)


# altup


def predicted(part, h):
    """What a layer makes of the streams before it runs, stream by stream."""
    n = h.shape[-2]
    weights = torch.tanh(part.norm(h[..., 0, :]) @ part.router.T / h.shape[-1]) @ part.prediction.T
    return torch.stack(
        [h[..., s, :] + sum(weights[..., n * s + t, None] * h[..., t, :] for t in range(n)) for s in range(n)], -2
    )


def corrected(part, p, x):
    gain = 1 + torch.tanh(part.norm(x) @ part.router.T / x.shape[-1]) @ part.correction.T
    return torch.stack([p[..., s, :] + gain[..., s, None] * (x - p[..., 0, :]) for s in range(p.shape[-2])], -2)


def of_size(y, like):
    return y * (like.square().mean(-1, keepdim=True) / y.square().mean(-1, keepdim=True).clamp(min=1e-5)).sqrt()


def test_altup_in_a_decoder_is_its_equations():
    model = decoder("altup", streams=3)
    e, angles = model.embedding(TOKENS), model._angles(torch.arange(6))
    h = torch.stack([e, *(of_size(e @ w.T, e) for w in model.expansion.weight)], -2)
    for layer in model.layers:
        p = predicted(layer.altup, h)
        x = p[..., 0, :]
        for name, f in sublayers(layer, angles):
            norm, output_norm = getattr(layer, f"{name}_norm"), getattr(layer, f"{name}_output_norm")
            x = x + output_norm(f(norm(x)))
        h = corrected(layer.altup, p, x)
    others = [of_size(h[..., s + 1, :] @ w.T, h[..., 0, :]) for s, w in enumerate(model.collapse.weight)]
    x = model.norm((h[..., 0, :] + sum(others)) / 3)
    torch.testing.assert_close(model(TOKENS), x @ model.embedding.weight.T)


def test_altup_around_one_sublayer_predicts_and_corrects_around_it():
    for sublayer in ("attention", "feedforward"):
        around, f = shaken(nk.Placement("altup", 6, streams=3, sublayer=sublayer).double()), nn.Linear(6, 6).double()
        h = randn(2, 3, 6)
        p = predicted(around.altup, h)
        x = p[..., 0, :] + around.output_norm(f(around.norm(p[..., 0, :])))
        torch.testing.assert_close(around(h, f), corrected(around.altup, p, x))


def test_altup_between_three_sublayers_predicts_and_corrects_once():
    model = shaken(
        nk.TransformerLayer(placement="altup:streams=2", dim=8, heads=2, hidden=12, cross="softmax").double()
    )
    h, memory = randn(2, 3, 2, 8), randn(2, 5, 8, seed=1)
    p = predicted(model.altup, h)
    x = p[..., 0, :]
    x = x + model.attention_output_norm(model.attention(model.attention_norm(x)))
    x = x + model.cross_attention_output_norm(model.cross_attention(model.cross_attention_norm(x), memory=memory))
    x = x + model.feedforward_output_norm(model.feedforward(model.feedforward_norm(x)))
    torch.testing.assert_close(model(h, memory=memory), corrected(model.altup, p, x))


def test_laurel_around_one_sublayer_adds_its_map_and_shrinks_the_sum():
    around, f, x = shaken(nk.Placement("laurel:rank=2", 6, sublayer="attention").double()), nn.Linear(6, 6), randn(2, 6)
    f, h = f.double(), around.norm(x)
    mapped = around.laurel.norm(h @ around.laurel.down.T @ around.laurel.up.T)
    torch.testing.assert_close(around(x, f), (x + around.output_norm(f(h)) + h + mapped) / math.sqrt(2))


def test_laurel_without_a_rank_is_peri_norm():
    made, other = block("laurel", rank=None), block("peri-norm")
    other.load_state_dict(made.state_dict())
    torch.testing.assert_close(made(randn(2, 6)), other(randn(2, 6)))


# gpas


@pytest.mark.parametrize("placement", ["pre-norm", "peri-norm", "deepnorm"])
def test_gpas_scales_the_stream_and_not_its_gradient(placement):
    made, x = block("gpas", depth=3, norm="layernorm", placement=placement), randn(2, 6).requires_grad_()

    def pass_by(x, y, norm, output_norm):
        keep = 1 - F.silu(made.gate.detach())
        if placement == "deepnorm":
            return norm(6**0.25 * keep * x + y)
        return keep * (x + (y if output_norm is None else output_norm(y)))

    want = x
    for name, f in (("attention", made.attention), ("feedforward", made.feedforward)):
        norm, output_norm = getattr(made, f"{name}_norm"), getattr(made, f"{name}_output_norm", None)
        y = f(want if placement == "deepnorm" else norm(want))
        want = pass_by(want, y, norm, output_norm)
    torch.testing.assert_close(made(x), want)


def test_the_gradient_of_gpas_passes_as_if_nothing_were_scaled():
    from normkit.residual.gpas import scale_down

    x, gate, dy = randn(3, 4).requires_grad_(), torch.tensor(0.7, dtype=DOUBLE, requires_grad=True), randn(3, 4, seed=1)
    scale_down(x, gate).backward(dy)
    assert torch.equal(x.grad, dy)
    slope = torch.autograd.functional.jacobian(F.silu, gate.detach())
    torch.testing.assert_close(gate.grad, -slope * (x * dy).sum())
    _, tangent = torch.func.jvp(lambda x: scale_down(x, gate.detach()), (x.detach(),), (dy,))
    assert torch.equal(tangent, dy)


@pytest.mark.parametrize("placement", WIDE)
def test_a_placement_of_one_sublayer_carries_a_wider_stream(placement):
    around = shaken(nk.Placement(placement, 6, sublayer="attention").double())
    sublayers = {"attention": nn.Linear(6, 6), "feedforward": nn.Linear(6, 6)}
    whole = nk.create(placement, dim=6, **{"norm": "layernorm"}, **sublayers).double()
    own = {name: value for name, value in whole.state_dict().items() if name.startswith("attention_")}
    whole.load_state_dict({**whole.state_dict(), **{k: around.state_dict()[k.partition("_")[2]] for k in own}})
    stream = around.form.expand(randn(2, 3, 6), around.place)
    held = whole.connect("attention", whole.form.open(stream), whole.attention)
    torch.testing.assert_close(around(stream, whole.attention), whole.form.close(held))


# mistakes


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: block("mhc", streams=3)(randn(2, 4, 6)), r"MHC: x must end in axes of sizes \(3, 6\).*\(2, 4, 6\)"),
        (lambda: block("hyper-connections")(randn(4, 5)), r"HyperConnections: x must end in .*\(4, 6\).*\(4, 5\)"),
        (lambda: block("mhc-lite", streams=7), "streams must be .*6.*7"),
        (lambda: block("mhc", streams=0), "streams must be"),
        (lambda: block("altup", streams=1), "altup: streams must be at least 2, not 1"),
        (lambda: block("laurel", rank=0), "laurel: rank must be at least 1, not 0"),
        (
            lambda: block("altup", streams=3)(randn(2, 4, 6)),
            r"AltUp: x must end in axes of sizes \(3, 6\).*\(2, 4, 6\)",
        ),
        (lambda: block("mhc", iterations=-1), "iterations must be"),
        (lambda: nk.MHCHead(6, streams=3)(torch.zeros(2, 6)), r"MHCHead: x must end in .*\(3, 6\).*\(2, 6\)"),
        (lambda: nk.DepthAttention(6)(torch.zeros(0, 2, 6)), r"sources must be one or more.*\(0, 2, 6\)"),
        (lambda: nk.DepthAttention(6)(torch.zeros(6)), "sources must have at least 2 axes"),
        (lambda: block("siamese-norm")(randn(2, 6), randn(3, 6)), r"identity must have shape \(2, 6\)"),
        (lambda: block("attention-residuals")(randn(1, 3, 6), randn(2, 6)), r"blocks must have shape \(any, 2, 6\)"),
        (lambda: block("attention-residuals", block_size=0), "block_size must be"),
        (lambda: block("gpas", placement="post-norm"), "placement must be one of .*'pre-norm'.*'post-norm'"),
    ],
)
def test_a_mistake_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_layer_names_a_stream_of_another_form():
    layer = nk.TransformerLayer(placement="siamese-norm", dim=8, heads=2, hidden=12)
    with pytest.raises(TypeError, match="TransformerLayer: x must be two tensors, post and identity, not Tensor"):
        layer(torch.zeros(2, 3, 8))
    layer = nk.TransformerLayer(placement="mhc", dim=8, heads=2, hidden=12)
    with pytest.raises(ValueError, match=r"\(any, any, 4, 8\).*\(3, 4, 8\)"):
        layer(torch.zeros(3, 4, 8))


# over processes

SHARDED = ["mhc", "hyper-connections", "mhc-lite:streams=3", "siamese-norm", "attention-residuals", "altup:rank=3"]


def trained(model, tokens):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in tokens:
        logits = model(part[:, :-1])
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()).backward()
        optimizer.step()


def batches():
    return torch.randint(11, (3, 4, 6), generator=torch.Generator().manual_seed(5))


def train_in_two():
    from torch.distributed.fsdp import fully_shard

    rank, states = torch.distributed.get_rank(), []
    mesh = mesh_of((2,))
    for placement in SHARDED:
        model = decoder(placement)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained(model, batches()[:, 2 * rank : 2 * rank + 2])
        states.append({name: value.full_tensor() for name, value in model.state_dict().items()})
    return states


def test_sharded_models_train_as_whole_ones(tmp_path):
    ranks = over_processes(train_in_two, 2, tmp_path)
    for at, placement in enumerate(SHARDED):
        model = decoder(placement)
        trained(model, batches())
        for states in ranks:
            torch.testing.assert_close(states[at], dict(model.state_dict()), rtol=1e-6, atol=1e-9)


def test_scales_of_hyper_connections_load_without_an_axis_too():
    model = block("hyper-connections")
    state = {name: value.squeeze() if "scale" in name else value for name, value in model.state_dict().items()}
    assert any(value.dim() == 0 for value in state.values())
    other = block("hyper-connections")
    with torch.no_grad():
        other.attention_connection.alpha_scale.zero_()
    other.load_state_dict(state)
    torch.testing.assert_close(dict(other.state_dict()), dict(model.state_dict()))
