"""Folding batch norms: every layer, position and padding against the two layers run one after the other."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normkit as nk
from normkit.surgery.exact.pairs import fold_batchnorm, fold_pair, scale_and_shift

CONVS = [
    (kind, groups, stride, dilation)
    for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    for groups, stride, dilation in itertools.product((1, 2), (1, 2), (1, 2))
]


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **{"rtol": 1e-10, "atol": 1e-10, **tolerance})


def settled(norm, seed=0):
    """A norm in evaluation whose state is not at rest, negative gains and a dead channel included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in norm.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.randn(value.shape, generator=generator).double())
            if name.endswith(("var", "deviation", "std", "phi")):
                value.abs_()
            if name.endswith("var"):
                value[0] = 0
    return norm.double().eval()


def rank(kind):
    return int(kind.__name__[-2])


def image(kind, channels, size=7):
    return torch.randn(3, channels, *[size] * rank(kind), dtype=torch.float64)


@pytest.mark.parametrize("kind, groups, stride, dilation", CONVS)
@pytest.mark.parametrize("bias", [True, False])
def test_after_a_convolution(kind, groups, stride, dilation, bias):
    layer = kind(4, 6, 3, stride=stride, dilation=dilation, groups=groups, padding=1, bias=bias).double()
    norm = settled(nk.create("batchnorm", 6))
    x = image(kind, 4)
    new = fold_pair(layer, norm)
    close(new(x), norm(layer(x)))
    assert new.bias is not None
    assert new.weight.data_ptr() != layer.weight.data_ptr()


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_padding_modes(kind, mode):
    layer = kind(4, 6, 3, padding=1, padding_mode=mode, groups=2).double()
    x = image(kind, 4)
    after, before = settled(nk.create("batchnorm", 6)), settled(nk.create("batchnorm", 4))
    close(fold_pair(layer, after)(x), after(layer(x)))
    new = fold_pair(layer, before, "before")
    assert type(new) is kind
    close(new(x), layer(before(x)))


@pytest.mark.parametrize("padding", [0, 1, 2, "same", "valid"])
@pytest.mark.parametrize("groups, dilation, bias", [(1, 1, True), (2, 2, False)])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_before_a_convolution_that_pads_with_zeros(kind, groups, dilation, bias, padding):
    layer = kind(4, 6, (3, 2, 1)[: rank(kind)], padding=padding, groups=groups, dilation=dilation, bias=bias).double()
    norm = settled(nk.create("batchnorm", 4))
    x = image(kind, 4)
    new = fold_pair(layer, norm, "before")
    close(new(x), layer(norm(x)))
    assert (type(new) is kind) == (padding in (0, "valid"))
    if type(new) is not kind:  # what is behind the padding is a convolution that pads no more, and can be folded into
        other = settled(nk.create("batchnorm", 4), seed=1)
        again = fold_pair(new[1], other, "before")
        assert type(again) is kind
        close(again(x), new[1](other(x)))


def test_linears_before_and_after_and_behind_flattened_images():
    layer, x = nn.Linear(12, 5).double(), torch.randn(3, 4, 3, 1, dtype=torch.float64)
    norm = settled(nn.BatchNorm1d(5))
    close(fold_pair(layer, norm)(x.flatten(1)), norm(layer(x.flatten(1))))
    norm = settled(nn.BatchNorm1d(12))
    close(fold_pair(layer, norm, "before")(x.flatten(1)), layer(norm(x.flatten(1))))
    norm = settled(nn.BatchNorm2d(4))
    close(fold_pair(layer, norm, "before")(x.flatten(1)), layer(norm(x).flatten(1)))


@pytest.mark.parametrize(
    "name, options",
    [
        *((name, {}) for name in ("batchnorm", "l1-batchnorm", "ghost-batchnorm", "batch-renorm")),
        *(("repair", {"variant": variant}) for variant in ("repair", "rescale", "reshift")),
    ],
)
def test_the_librarys_layers_are_asked_what_they_do(name, options):
    norm = settled(nk.create(name, 4, **options))
    a, c = scale_and_shift(norm)
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    close(a.view(-1, 1) * x + c.view(-1, 1), norm(x))


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm])
def test_a_layer_derived_from_one_of_torchs_is_asked_too(kind):
    norm = settled(type("Derived", (kind,), {})(4))
    for got, want in zip(scale_and_shift(norm), scale_and_shift(settled(kind(4))), strict=True):
        close(got, want)


class Activated(nn.BatchNorm2d):
    """A batch norm that does more than its class says."""

    def forward(self, x):
        return super().forward(x).relu()


def reasons():
    conv, norm = nn.Conv2d(4, 4, 3), settled(nn.BatchNorm2d(4))
    hooked = nn.Conv2d(4, 4, 3)
    hooked.register_forward_hook(lambda *_: None)
    zero = settled(nn.BatchNorm2d(4))
    zero.weight.data[1] = 0
    yield conv, settled(Activated(4)), "after", "not a scale and a shift"
    yield conv, nn.BatchNorm2d(4), "after", "train mode"
    yield conv, nn.LayerNorm(4).eval(), "after", "LayerNorm is no layer with batch statistics"
    yield conv, nn.BatchNorm2d(4, track_running_stats=False).eval(), "after", "not a scale and a shift"
    yield conv, settled(nk.create("powernorm", 4)), "after", "not a scale and a shift"
    yield conv, settled(nk.create("evonorm-b0", 4)), "after", "not a scale and a shift"
    yield conv, nk.create("onlinenorm", 4).eval(), "after", "not a scale and a shift"  # it clamps at 5
    yield conv, settled(nn.BatchNorm2d(5)), "after", "5 channels, the layer 4"
    yield parametrizations.weight_norm(nn.Conv2d(4, 4, 3)), norm, "after", "no plain linear"
    yield hooked, norm, "after", "hook"
    yield nn.ConvTranspose2d(4, 4, 3), norm, "before", "conv-transpose"
    yield nn.Conv2d(4, 4, 3, padding=1), zero, "before", "gain of 0"


@pytest.mark.parametrize("layer, norm, position, reason", list(reasons()))
def test_what_cannot_be_folded_says_why(layer, norm, position, reason):
    with pytest.raises(ValueError, match=reason):
        fold_pair(layer, norm, position)


def test_a_gain_of_zero_is_fine_where_nothing_is_padded():
    norm = settled(nn.BatchNorm2d(4))
    norm.weight.data[1] = 0
    for layer in (nn.Conv2d(4, 4, 3).double(), nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular").double()):
        x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
        close(fold_pair(layer, norm, "before")(x), layer(norm(x)))
        close(fold_pair(layer, norm)(x), norm(layer(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_computed_in_double_and_rounded_once(dtype):
    layer, norm = nn.Linear(3, 4).to(dtype), settled(nn.BatchNorm1d(4)).to(dtype)
    new = fold_pair(layer, norm)
    exact = fold_pair(copy.deepcopy(layer).double(), copy.deepcopy(norm).double())
    assert torch.equal(new.weight, exact.weight.to(dtype))
    assert torch.equal(new.bias, exact.bias.to(dtype))


def test_the_function_is_differentiable():
    values = [torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((4, 3, 2), (4,), (6,), (6,), (6,), (6,))]
    for position, layer in (("before", "conv"), ("after", "conv-transpose")):
        shape = (4, 3, 2)
        given = (
            values
            if position == "before"
            else [
                torch.rand(shape, dtype=torch.float64, requires_grad=True),
                torch.rand(6, dtype=torch.float64),
                *values[2:],
            ]
        )
        assert torch.autograd.gradcheck(
            lambda *v, o=(layer, position): fold_batchnorm(*v, layer=o[0], position=o[1], groups=2), given
        )


def test_a_large_eps_is_added_to_the_variance():
    layer, norm = nn.Linear(3, 4).double(), settled(nn.BatchNorm1d(4, eps=0.5))
    norms = norm.running_mean, norm.running_var, norm.weight, norm.bias
    weight, bias = fold_batchnorm(layer.weight, layer.bias, *norms, eps=0.5)
    x = torch.randn(5, 3, dtype=torch.float64)
    close(nn.functional.linear(x, weight, bias), norm(layer(x)))


def test_wrong_arguments_are_named():
    w, v = torch.ones(4, 3), torch.ones(4)
    with pytest.raises(ValueError, match="layer must be one of"):
        fold_batchnorm(w, v, v, v, v, v, layer="conv2d")
    with pytest.raises(ValueError, match=r"running_mean must have shape \(3\)"):
        fold_batchnorm(w, v, v, v, v, v, position="before")
    with pytest.raises(ValueError, match=r"fold_batchnorm: bias must have shape \(4\)"):
        fold_batchnorm(w, torch.ones(1), v, v, v, v)
    with pytest.raises(ValueError, match="bias for each position"):
        fold_batchnorm(w, v, v, v, v, v, layer="conv-transpose", position="before")


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("placement", ["pre-norm", "mhc"])
def test_the_norms_of_a_decoder_are_folded_with_those_that_add_in_the_same_pass(placement, norm):
    torch.manual_seed(0)
    tokens = torch.randint(11, (2, 5))
    options = {"norm": norm, "placement": placement, "bias": True, "tied": False, "activation": "swiglu"}
    model = nk.Decoder(vocab=11, dim=8, depth=3, heads=2, hidden=12, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    with torch.no_grad():
        want = model(tokens)
    norms = [f"layers.{i}.{part}_norm" for i in range(3) for part in ("attention", "feedforward")]
    report = nk.fold(model, tokens)
    folded = [change.site for change in report if change.became.startswith("without gain and shift")]
    last = [] if norm == "layernorm" else ["norm"]  # the head has no shift to take its shift
    assert [site for site in folded if site in norms] == norms
    assert set(last) <= set(folded)
    for name in norms:
        weight = getattr(model.get_submodule(name), "weight", None)
        assert weight is None or (weight == 1).all()
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), want, rtol=1e-12, atol=1e-12)
