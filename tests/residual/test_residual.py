"""Placements beyond the contract: one sublayer alone, depth, processes, watching; the single methods of the room."""

import functools
import math

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import catalog
from normkit.residual.stream import SUBLAYERS, Block, WholeLayer, placements
from normkit.residual.wiring import ONE, Branch, Wiring, unit
from processes import mesh_of, over_processes

DOUBLE = torch.float64
ALONE = [name for name, wiring in placements().items() if not wiring.needs_a_layer and wiring.form == ONE]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def shaken(module):
    """The module with its parameters moved off their start."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


# one sublayer


def equations(name, p, x, f, layer, depth):
    """The specs' equations for one sublayer, written apart from the table."""
    norm = p.norm if hasattr(p, "norm") else None
    return {
        "pre-norm": lambda: x + f(norm(x)),
        "post-norm": lambda: norm(x + f(x)),
        "res-post-norm": lambda: x + p.output_norm(f(x)),
        "peri-norm": lambda: x + p.output_norm(f(norm(x))),
        "laurel": lambda: x + p.output_norm(f(norm(x))),
        "depth-scaled-sandwich": lambda: x + p.output_norm(f(norm(x))),
        "deepnorm": lambda: norm((2 * depth) ** 0.25 * x + f(x)),
        "layernorm-scaling": lambda: x + f(norm(x) / math.sqrt(layer + 1)),
        "mix-ln": lambda: norm(x + f(x)) if layer < depth // 4 else x + f(norm(x)),
        "residual-scaling": lambda: x + f(x) / (2 * depth),
        "skipinit": lambda: x + p.scale * f(x),
        "fixup-residual": lambda: x + p.scale * f(x - p.shift),
        "keel": lambda: p.sum_norm(2 * depth * x + f(norm(x))),
        "gpas": lambda: (1 - nn.functional.silu(p.gate)) * (x + f(norm(x))),
    }[name]()


@pytest.mark.parametrize("layer", [0, 1, 7])
@pytest.mark.parametrize("name", [*ALONE, "fixup-residual"])
def test_a_placement_goes_around_one_sublayer(name, layer):
    torch.manual_seed(0)
    around = shaken(nk.Placement(name, 6, layer=layer, depth=8).double())
    sublayer = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)).double()
    x = randn(2, 3, 6)
    torch.testing.assert_close(around(x, sublayer), equations(name, around, x, sublayer, layer, 8))


def test_a_placement_goes_around_a_block_of_a_cnn():
    around = nk.Placement("peri-norm", 4, norm=nn.BatchNorm2d).double()
    convolution = nn.Conv2d(4, 4, 3, padding=1).double()
    x = randn(2, 4, 5, 5)
    plain = nn.BatchNorm2d(4).double()
    torch.testing.assert_close(around(x, convolution), x + plain(convolution(plain(x))))
    assert sorted(around.state_dict())[:2] == ["norm.bias", "norm.num_batches_tracked"]
    grouped = nk.Placement("pre-norm", 4, norm=functools.partial(nn.GroupNorm, 2)).double()
    torch.testing.assert_close(grouped(x, convolution), x + convolution(nn.functional.group_norm(x, 2)))


def test_a_placement_starts_a_sublayer():
    branch = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    first, middle, last = (branch[i].weight for i in (0, 2, 4))
    nk.Placement("fixup-residual", 4, depth=8).initialize(branch)
    assert last.abs().max() == 0
    bound = math.sqrt(6 / (4 * 9 + 4 * 9)) * 16 ** (-1 / 4)  # Xavier's, times N^(-1/(2m-2)), N = 16 branches, m = 3
    for weight in (first, middle):
        assert 0.9 * bound < weight.abs().max() <= bound
    matrix = nk.Placement("deepnorm", 64, depth=8).initialize(nn.Linear(64, 64)).weight
    torch.testing.assert_close(matrix.std().item(), 64**-0.5 * 64**-0.25, rtol=0.05, atol=0)
    inner = nn.ModuleDict({"query": nn.Linear(64, 64), "value": nn.Linear(64, 64)})
    nk.Placement("deepnorm", 64, depth=8).initialize(nn.ModuleDict({"attention": inner}))
    torch.testing.assert_close(inner["query"].weight.std().item(), 64**-0.5, rtol=0.05, atol=0)
    torch.testing.assert_close(inner["value"].weight.std().item(), 64**-0.5 * 64**-0.25, rtol=0.05, atol=0)


def test_a_placement_that_reaches_inside_is_refused_alone():
    with pytest.raises(ValueError, match=r"TransformerLayer.*pre-norm"):
        nk.Placement("normformer", 4)


def test_a_norm_without_a_gain_is_refused_where_its_gain_would_start_small():
    norm = lambda dim: nn.LayerNorm(dim, elementwise_affine=False)  # noqa: E731
    with pytest.raises(ValueError, match=r"starts the norm's gain at 0\.2, but norm=.* has no weight"):
        nk.TransformerLayer(dim=8, heads=2, hidden=8, depth=2, placement="depth-scaled-sandwich", norm=norm)


def test_a_sublayer_that_changes_the_shape_is_named():
    with pytest.raises(ValueError, match=r"sublayer.*\(2, 4\).*\(2, 5\)"):
        nk.Placement("pre-norm", 4)(torch.zeros(2, 4), nn.Linear(4, 5))
    block = nk.PreNorm(dim=4, attention=nn.Linear(4, 5), feedforward=nn.Identity())
    with pytest.raises(ValueError, match="attention"):
        block(torch.zeros(2, 4))
    with pytest.raises(TypeError, match="feedforward"):
        nk.PreNorm(dim=4, attention=nn.Identity(), feedforward=3)


def test_further_arguments_go_to_attention():
    class Scaled(nn.Module):
        def forward(self, x, by):
            return x * by

    block = nk.SkipInit(dim=4, attention=Scaled(), feedforward=nn.Identity())
    nn.init.ones_(block.attention_scale)
    torch.testing.assert_close(block(torch.ones(2, 4), by=3.0), torch.full((2, 4), 4.0))


def test_a_watched_norm_is_called_as_a_module():
    block = nk.PreNorm(dim=4, attention=nn.Linear(4, 4), feedforward=nn.Linear(4, 4))
    x = torch.randn(3, 4)
    want, seen = block(x), []
    block.feedforward_norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(block(x), want)
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["pre-norm", "post-norm", "peri-norm"])
def test_a_dialect_of_a_norm_is_a_function_of_the_width(name):
    gemma = functools.partial(nk.RMSNorm, offset=1.0)
    layer = nk.TransformerLayer(placement=name, dim=8, heads=2, hidden=12, norm=gemma).double()
    plain = nk.TransformerLayer(placement=name, dim=8, heads=2, hidden=12, norm="rmsnorm").double()
    plain.load_state_dict({k: v + 1 if "norm" in k else v for k, v in layer.state_dict().items()})
    x = randn(2, 3, 8)
    torch.testing.assert_close(layer(x), plain(x))


def test_gains_start_small_whatever_the_dialect():
    for norm, offset in (("layernorm", 0.0), (functools.partial(nk.RMSNorm, offset=1.0), 1.0)):
        block = nk.DepthScaledSandwich(dim=4, depth=16, norm=norm, attention=nn.Identity(), feedforward=nn.Identity())
        torch.testing.assert_close(block.attention_output_norm.weight + offset, torch.full((4,), 0.283 / 4))
        torch.testing.assert_close(block.feedforward_output_norm.weight + offset, torch.full((4,), 0.432 / 4))


def test_deepnorm_constants_of_every_stack():
    (alpha, beta), none = nk.deepnorm_constants(12)
    assert none is None
    assert (alpha, beta) == pytest.approx((24**0.25, 96**-0.25))
    encoder, decoder = nk.deepnorm_constants(18, 6)
    assert encoder == pytest.approx((0.81 * (18**4 * 6) ** (1 / 16), 0.87 * (18**4 * 6) ** (-1 / 16)))
    assert decoder == pytest.approx((18**0.25, 72**-0.25))
    with pytest.raises(ValueError, match="decoder_layers"):
        nk.deepnorm_constants(1, -1)


def test_the_matrices_start_by_the_placement():
    sizes = {"dim": 64, "heads": 4, "hidden": 256, "depth": 8}
    deep = nk.TransformerLayer(placement="deepnorm", **sizes)
    torch.testing.assert_close(deep.attention.query.weight.std().item(), 1 / 8, rtol=0.05, atol=0)
    torch.testing.assert_close(deep.attention.output.weight.std().item(), 1 / 8 * 64**-0.25, rtol=0.05, atol=0)
    torch.testing.assert_close(deep.feedforward.up.weight.std().item(), 160**-0.5 * 64**-0.25, rtol=0.05, atol=0)
    fixup = nk.TransformerLayer(placement="fixup-residual", **sizes)
    assert fixup.attention.output.weight.abs().max() == fixup.feedforward.down.weight.abs().max() == 0
    assert fixup.attention.key.weight.abs().max() <= math.sqrt(6 / 128) * 16 ** (-1 / 6)
    assert fixup.feedforward.up.weight.abs().max() <= math.sqrt(6 / 320) * 16 ** (-1 / 2)
    sphere = nk.TransformerLayer(placement="ngpt", **sizes)
    assert_on_the_sphere(sphere)


# placements by name


@pytest.mark.parametrize("name", placements())
def test_what_can_be_typed_as_a_placement_has_a_card_and_builds(name):
    card = nk.card(name)
    assert getattr(nk, card.entry.__name__) is card.entry
    assert card.entry.wiring.needs_a_layer == issubclass(card.entry, WholeLayer)
    made = card.small()
    assert made.placement == name
    stream = made.form.expand(torch.randn(2, 3, 8), made.place)
    after = made(*stream) if isinstance(stream, tuple) else made(stream)
    assert type(after) is type(stream)
    assert made.form.end(after, made.form.collapse(made.place, lambda: nn.LayerNorm(8)), nn.Identity()).shape == (
        2,
        3,
        8,
    )


@pytest.mark.parametrize("name", [n for n, wiring in placements().items() if wiring.needs_a_layer])
def test_a_placement_that_reaches_inside_builds_the_transformer_layer_wired_so(name):
    own = {"norm": "layernorm"} if placements()[name].normalizes else {}
    own |= {} if placements()[name].activation else {"activation": "relu"}
    sizes = {"dim": 8, "heads": 2, "hidden": 12, "layer": 1, "depth": 3, **own}
    torch.manual_seed(0)
    made = getattr(nk, nk.card(name).entry.__name__)(**sizes, window=2, kv_heads=2)
    torch.manual_seed(0)
    want = nk.TransformerLayer(placement=name, **{"norm": "layernorm", **sizes}, window=2, kv_heads=2)
    assert type(made) is nk.TransformerLayer
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(made(x), want(x), rtol=0, atol=0)


@pytest.mark.parametrize("old, new", [("qk-norm", "qk-norm-layer"), ("hybridnorm*", "hybridnorm:first_pre_norm=True")])
def test_old_names_of_placements_stay(old, new):
    sizes = {"vocab": 7, "dim": 8, "depth": 2, "heads": 2, "hidden": 12}
    first, second = (nk.Decoder(**sizes, placement=name) for name in (old, new))
    assert [layer.branches for layer in first.layers] == [layer.branches for layer in second.layers]
    assert first.state_dict().keys() == second.state_dict().keys()
    assert first.layers[0].branches != nk.Decoder(**sizes, placement="hybridnorm").layers[0].branches
    assert nk.create("qk-norm", 4, heads=2, length=8).card.room == "attention"


@pytest.mark.parametrize(
    "build, words",
    [
        (lambda: nk.DeepNorm(dim=4, attention=nn.Identity(), feedforward=nn.Identity()), "depth"),
        (lambda: nk.MixLN(dim=4, depth=2, attention=nn.Identity(), feedforward=nn.Identity()), "layer"),
        (lambda: nk.create("mix-ln", dim=4, beta=1.0), "takes no argument 'beta'; .*alpha"),
        (lambda: nk.Decoder(vocab=5, dim=8, depth=1, heads=2, qk_norm=True), "did you mean .*'query_key_norm'"),
        (
            lambda: nk.Decoder(vocab=5, dim=8, depth=1, heads=2, rotary_bas=1.0),
            "^Decoder takes no argument 'rotary_bas', nor does its placement 'pre-norm', which .* mean 'rotary_base'",
        ),
        (lambda: nk.PreNorm(dim=4, attention=nn.Identity(), feedforward=nn.Identity(), alpha=1.0), "alpha"),
        (lambda: nk.SkipInit(dim=4, norm="rmsnorm", attention=nn.Identity(), feedforward=nn.Identity()), "norm"),
        (lambda: nk.NGPT(dim=8, heads=2, hidden=12, activation="relu"), "activation"),
        (lambda: nk.NGPT(dim=8, heads=2), "hidden"),
    ],
)
def test_a_placement_takes_its_own_arguments_by_name(build, words):
    with pytest.raises(TypeError, match=words):
        build()


def test_a_place_of_a_norm_that_there_is_not_is_named():
    with pytest.raises(ValueError, match=r"Branch: norm must be one of 'input', .* not 'inputs'"):
        Branch(norm="inputs")


@pytest.fixture
def toy():
    """A placement of a user's: a class and its wiring."""

    @nk.method("toy-share", shape="... C", over="C", example=SUBLAYERS)
    class ToyShare(nk.Block):
        """Pre-norm whose branches count a share, in deeper layers less."""

        wiring = Wiring(
            Branch(norm="input", branch=lambda at: at.options["share"] / (at.layer + 1)),
            options={"share": 0.5},
            defaults={"norm": "rmsnorm"},
            needs=("layer",),
        )

    yield ToyShare
    catalog._cards.pop("toy-share")


def test_a_placement_of_ones_own_is_one_class_and_goes_wherever_a_placement_goes(toy):
    f, g = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
    block = nk.create("toy-share", dim=4, layer=1, depth=2, share=0.6, attention=f, feedforward=g).double()
    x = randn(3, 4)
    y = x + 0.3 * f(block.attention_norm(x))
    torch.testing.assert_close(block(x), y + 0.3 * g(block.feedforward_norm(y)))
    with pytest.raises(TypeError, match="layer"):
        toy(dim=4, attention=f, feedforward=g)
    model = nk.Decoder(vocab=7, dim=8, depth=2, heads=2, placement="toy-share:share=0.25", norm="dyt:alpha=0.3")
    assert [layer.branches["attention"].branch for layer in model.layers] == [0.25, 0.125]
    assert model(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 7)
    around = nk.Placement("toy-share", 4, layer=3, depth=4).double()
    torch.testing.assert_close(around(x, f), x + 0.125 * f(around.norm(x)))
    assert type(block.attention_norm) is nk.RMSNorm
    for name in ("mid-norm", "rmsnorm", "normkit.activation.token.rmsnorm"):
        with pytest.raises(ValueError, match=f"placement must be one of .*'toy-share', not '{name}'"):
            nk.Decoder(vocab=7, dim=8, depth=1, heads=2, placement=name)


NUMBERS = {"gain": 2.0, "residual": 0.7, "branch": 0.3, "shift": 0.1, "scale": 1.5}


@pytest.mark.parametrize("left_out", [None, *NUMBERS])
@pytest.mark.parametrize("sum_norm", [False, True])
def test_a_branch_is_its_formula_with_any_part_left_out(left_out, sum_norm):
    numbers = {name: value for name, value in NUMBERS.items() if name != left_out}
    branch = Branch(norm="input", output_norm=True, sum_norm=sum_norm, **numbers)

    @nk.method("toy-formula", shape="... C", over="C", example=SUBLAYERS)
    class ToyFormula(nk.Block):
        """Numbers of one's own at all places."""

        wiring = Wiring(branch, defaults={"norm": "rmsnorm"})

    try:
        around, f, x = nk.Placement("toy-formula", 4).double(), nn.Linear(4, 4).double(), randn(3, 4)
    finally:
        catalog._cards.pop("toy-formula")
    n = {"gain": 1.0, "residual": 1.0, "branch": 1.0, "shift": 0.0, "scale": 1.0, **numbers}
    inner = around.output_norm(f(n["gain"] * (around.norm(x) - n["shift"])))
    out = n["residual"] * x + n["branch"] * n["scale"] * inner
    torch.testing.assert_close(around(x, f), around.sum_norm(out) if sum_norm else out)


# depth


def stack(placement, layers, dim=16):
    torch.manual_seed(0)
    make = functools.partial(nk.TransformerLayer, placement=placement, dim=dim, heads=2, hidden=32, depth=layers)
    return [make(layer=index) for index in range(layers)]


def journey(layers, x):
    """The stream after every layer, kept for its gradient."""
    streams = [x.requires_grad_(True)]
    for layer in layers:
        streams.append(layer(streams[-1]))
        streams[-1].retain_grad()
    return streams


def update_of_one_step(placement, layers, part):
    """How far one SGD step on the matrices of ``part`` moves the output, divided by the rate of the step."""
    made, x, rate = stack(placement, layers), torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)), 1e-4
    probe = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(2))
    before = journey(made, x)[-1]
    (before * probe).sum().backward()
    with torch.no_grad():
        for name, parameter in nn.ModuleList(made).named_parameters():
            if parameter.dim() > 1 and part in name:
                parameter -= rate * parameter.grad
    return (journey(made, x.detach())[-1] - before).norm().item() / rate


@pytest.mark.parametrize("placement", ["deepnorm", "fixup-residual"])
def test_a_thousand_sublayers_carry_signal_and_gradient(placement):
    x = torch.nn.functional.layer_norm(torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)), (16,))
    streams = journey(stack(placement, 500), x)
    probe = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(2))
    (streams[-1] * (probe - probe.mean(-1, keepdim=True))).sum().backward()
    sizes = torch.tensor([s.norm().item() for s in streams])
    gradients = torch.tensor([s.grad.norm().item() for s in streams[1:-1]])
    # DeepNorm's stream is normalized, Fixup's untouched at the start
    torch.testing.assert_close(sizes, sizes[:1].expand_as(sizes), rtol=1e-3, atol=0)
    assert gradients.max() / gradients.min() < 2


# Fixup's rule counts attention as a product of four matrices, of which only two act as one: there, it is no bound
@pytest.mark.parametrize("placement, part", [("deepnorm", ""), ("fixup-residual", "feedforward")])
def test_one_step_moves_a_thousand_sublayers_no_more_than_a_few(placement, part):
    shallow, deep = update_of_one_step(placement, 10, part), update_of_one_step(placement, 500, part)
    assert deep < 1.2 * shallow


def test_post_norm_loses_the_gradient_that_deepnorm_keeps():
    streams = journey(stack("post-norm", 100), torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)))
    (streams[-1] * torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(2))).sum().backward()
    gradients = [s.grad.norm().item() for s in streams[1:-1]]
    assert max(gradients) / min(gradients) > 2


# nGPT's projection


def assert_on_the_sphere(layer):
    for name, axis in (("query", 1), ("key", 1), ("value", 1), ("output", 0)):
        lengths = getattr(layer.attention, name).weight.norm(dim=axis)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
    for name, axis in (("up", 1), ("down", 0)):
        lengths = getattr(layer.feedforward, name).weight.norm(dim=axis)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))


SPHERE = {"vocab": 7, "dim": 8, "depth": 2, "heads": 2, "hidden": 5, "placement": "ngpt", "tied": False}


def sphere_model():
    torch.manual_seed(0)
    return nk.Decoder(**SPHERE)


def train(model, tokens, project):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(3):
        logits = model(tokens[step][:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[step][:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        project()


def batches():
    return torch.randint(7, (3, 4, 6), generator=torch.Generator().manual_seed(5))


def train_in_two():
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    rank = torch.distributed.get_rank()
    own = batches()[:, 2 * rank : 2 * rank + 2]
    ddp = DistributedDataParallel(sphere_model())
    train(ddp, own, ddp.module.normalize_weights)
    mesh = mesh_of((2,))
    sharded = sphere_model()
    for layer in sharded.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(sharded, own, sharded.normalize_weights)
    whole = {name: p.full_tensor() for name, p in sharded.state_dict().items()}
    return ddp.module.state_dict(), whole


def test_weights_return_to_the_sphere_under_ddp_and_fsdp(tmp_path):
    ranks = over_processes(train_in_two, 2, tmp_path)
    model = sphere_model()
    train(model, batches(), model.normalize_weights)
    for layer in model.layers:
        assert_on_the_sphere(layer)
    torch.testing.assert_close(model.embedding.weight.norm(dim=1), torch.ones(7))
    for states in ranks:
        for state in states:
            torch.testing.assert_close(dict(state), dict(model.state_dict()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_of_zeros_stays_on_its_way_to_the_sphere(dtype):
    model = sphere_model().to(dtype)
    up, table = model.layers[0].feedforward.up.weight, model.embedding.weight
    with torch.no_grad():
        up[1], table[2] = 0.0, 0.0
        table[3] = torch.tensor([0.0, 2**-24] * 4)  # the smallest number of float16
    model.normalize_weights()
    for matrix, row in ((up, 1), (table, 2)):
        want = torch.ones(len(matrix))
        want[row] = 0
        torch.testing.assert_close(matrix.float().norm(dim=1), want, rtol=torch.finfo(dtype).eps, atol=0)


def test_the_logits_grow_with_their_scale():
    model = sphere_model()
    before = model(batches()[0])
    with torch.no_grad():
        model.logit_scale.copy_(model.base_scale * torch.arange(1.0, 8.0))
    torch.testing.assert_close(model(batches()[0]), before * torch.arange(1.0, 8.0))


def test_rates_of_ngpt_count_by_their_size_alone():
    model = sphere_model()
    before = model(batches()[0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_alpha"):
                parameter.neg_()
    torch.testing.assert_close(model(batches()[0]), before)


def test_the_projection_does_nothing_elsewhere():
    model = nk.Decoder(**{**SPHERE, "placement": "pre-norm"})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.normalize_weights()
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


# the single methods


def test_tleg_expands_to_plain_layers():
    linear = shaken(nk.TLEGLinear(5, 3, layer=1, depth=4)).double()
    norm = shaken(nk.TLEGLayerNorm(5, layer=1, depth=4)).double()
    x = randn(2, 5)
    for module in (linear, norm):
        plain = module.expand(2, 8)  # the same share of the way, 1/4
        torch.testing.assert_close(plain(x), module(x))
        other = module.expand(5, 6)
        want = module.weight_base + 5 / 6 * module.weight_layer
        torch.testing.assert_close(other.weight, want)
        with pytest.raises(ValueError, match="layer=6"):
            module.expand(6, 6)


def test_sdd_linear_forgets_the_scale_of_its_weight():
    module = nk.SDDLinear(5, 4, eps=0.0).double()
    x = randn(3, 5)
    before = module(x)
    (before * randn(3, 4, seed=1)).sum().backward()
    torch.testing.assert_close(
        (module.weight.grad * module.weight).sum(), torch.zeros((), dtype=DOUBLE), atol=1e-12, rtol=0
    )
    with torch.no_grad():
        module.weight.mul_(100)
    torch.testing.assert_close(module(x), before)


def test_a_removed_layernorm_is_linear_without_a_bias_too():
    for bias in (True, False):
        module = shaken(nk.FakeLayerNorm(6, average_std=1.7, bias=bias)).double()
        module.remove()
        x, y = randn(3, 6), randn(3, 6, seed=1)
        torch.testing.assert_close(module(x + y) + module(0 * x), module(x) + module(y))
        torch.testing.assert_close(
            module(x) - module(0 * x), (x - x.mean(-1, keepdim=True)) / module.fixed_std * module.weight
        )


def test_projection_and_scaling_are_layernorm_without_eps():
    x = randn(4, 6) * 3
    module = shaken(nk.FactorizedLayerNorm(6)).double()
    want = nn.functional.layer_norm(x, (6,), module.weight, module.bias, eps=0.0)
    torch.testing.assert_close(module(x), want)
    plain = nk.FactorizedLayerNorm(6, affine=False)
    assert nk.projection_fraction(plain(x)).max() < 1e-28
    keys, query = plain(x), torch.full((6,), 2.0, dtype=DOUBLE)
    torch.testing.assert_close(torch.softmax(keys @ query, 0), torch.full((4,), 0.25, dtype=DOUBLE))
    scores = keys @ keys.mT  # with equal lengths, each key is selected by itself
    assert (scores.argmax(0) == torch.arange(4)).all()


def test_widenet_passes_share_sublayers_but_not_norms():
    attention, feedforward = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
    module = shaken(nk.WideNet(dim=4, depth=2, attention=attention, feedforward=feedforward).double())
    x = randn(3, 4)
    want = x
    for a, f in zip(module.attention_norms, module.feedforward_norms, strict=True):
        want = want + attention(a(want))
        want = want + feedforward(f(want))
    torch.testing.assert_close(module(x), want)
    assert sum(p.numel() for p in module.parameters()) == 2 * 20 + 4 * 8


def test_padding_under_float16_autocast_gives_ngpt_the_gradients_of_float32():
    torch.manual_seed(0)
    model = nk.Decoder(vocab=50, dim=32, depth=1, heads=4, placement="ngpt")
    tokens, mask = torch.randint(50, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    mask[0, :2] = False  # the first two positions see no key

    def gradient(enabled):
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            loss = model(tokens, mask).float().logsumexp(-1).mean()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    want = gradient(False)
    assert (gradient(True) - want).norm() < 0.01 * want.norm()


def test_a_vector_of_zeros_has_no_direction_and_so_no_gradient():
    x = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]], requires_grad=True)
    y = unit(x)
    y[..., 0].sum().backward()
    assert y.tolist() == [[[0.6000000238418579, 0.800000011920929], [0, 0]]]
    torch.testing.assert_close(x.grad, torch.tensor([[[0.128, -0.096], [0.0, 0.0]]]))


@pytest.mark.parametrize("name", [n for n in nk.methods(room="residual") if issubclass(nk.card(n).entry, Block)])
def test_a_block_whose_numbers_do_not_follow_from_the_depth_is_built_by_its_layer_alone(name):
    attention, feedforward = nn.Linear(4, 4, dtype=DOUBLE), nn.Linear(4, 4, dtype=DOUBLE)
    build = functools.partial(nk.create, name, dim=4, layer=3, attention=attention, feedforward=feedforward)
    if name in ("keel", "gpas") or nk.card(name).entry.wiring.needs:
        with pytest.raises((TypeError, ValueError), match="depth"):
            build()
        with pytest.raises(TypeError, match="depth must be an integer"):
            build(depth=None)
        return
    block, deep = build(dtype=DOUBLE), build(depth=9, dtype=DOUBLE)
    deep.load_state_dict(shaken(block).state_dict())
    stream = block.form.expand(randn(3, 4), block.place)
    stream = stream if isinstance(stream, tuple) else (stream,)
    torch.testing.assert_close(block(*stream), deep(*stream), rtol=0, atol=0)


def test_value_residual_takes_whether_it_learns_in_order():
    v, first = randn(2, 3), randn(2, 3, seed=1)
    module = shaken(nk.create("value-residual", True, dtype=DOUBLE))
    torch.testing.assert_close(module(v, first), module.weight[0] * v + module.weight[1] * first)
