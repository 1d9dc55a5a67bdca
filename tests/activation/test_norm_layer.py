"""Models of timm take a method as `norm_layer=`: built at every place of theirs, with its width, and trained a step."""

import functools
import inspect

import pytest
import torch

import normkit as nk
from normkit.kinds import NORM
from normkit.optional import let_torchvision_load

let_torchvision_load()
timm = pytest.importorskip("timm", reason="needs timm", exc_type=ImportError)

IMAGES = ("N C *", "N C +", "N C H W")
TOKENS = ("... C", "N T C", "N L C")


def methods(*layouts):
    """The methods whose class a model can call with a channel count, and whose module with one tensor of a layout."""
    return [name for name in nk.methods(room="activation") if nk.card(name).shape in layouts and alone(nk.card(name))]


def alone(card):
    first, *rest = card.signature.parameters.values()
    if card.kind is not NORM or first.name in card.example:
        return False
    width = first.kind is first.POSITIONAL_OR_KEYWORD and first.default is first.empty
    return width and all(layout.optional for layout in card.inputs.values()) and not any(needed(card, p) for p in rest)


def needed(card, parameter):
    return parameter.default is inspect.Parameter.empty and parameter.name not in card.example


def layer(name):
    card = nk.card(name)
    return functools.partial(card.entry, **card.example) if card.example else card.entry


def size(modules):
    return sum(p.numel() for m in modules for p in m.parameters())


def norms(model, kind):
    return [m for m in model.modules() if isinstance(m, kind)]


@functools.cache
def plain(model_name, options):
    """The places of a model's own norms, by their widths, and how many parameters it has without them."""
    model = timm.create_model(model_name, num_classes=3, **dict(options))
    replaced = norms(model, (torch.nn.BatchNorm2d, torch.nn.LayerNorm))
    return [norm.weight.numel() for norm in replaced], size([model]) - size(replaced)


def takes(model_name, name, shape, **options):
    """Build the model with the method and without, compare the places and the parameters, train a step, evaluate."""
    torch.manual_seed(0)
    make, kind = layer(name), nk.card(name).entry
    model = timm.create_model(model_name, num_classes=3, norm_layer=make, **options)
    widths, others = plain(model_name, tuple(options.items()))
    placed = [m for m in norms(model, kind) if m is not model]
    assert len(placed) == len(widths)
    assert size(placed) == size(make(width) for width in widths)
    assert size([model]) - size(placed) == others

    x = torch.randn(shape)
    loss = model(x).square().mean()
    loss.backward()
    assert torch.isfinite(loss)
    for parameter in model.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()
    for module in placed:
        none = {n for n, p in module.named_parameters() if p.requires_grad and p.grad is None}
        assert all(nk.card(name).exemption("gradients", parameter) for parameter in none), none
    assert torch.isfinite(model.eval()(x)).all()


@pytest.mark.parametrize("name", methods(*IMAGES))
def test_resnet(name):
    takes("resnet18", name, (2, 3, 64, 64), channels=(64, 64, 128, 64))


@pytest.mark.parametrize("name", methods(*IMAGES))
def test_convnext(name):
    # with the last norm before the pooling: a single position has no spread
    takes("test_convnext", name, (2, 3, 64, 64), conv_mlp=True, head_norm_first=True)


@pytest.mark.parametrize("name", methods(*TOKENS))
def test_vit(name):
    takes("vit_tiny_patch16_224", name, (2, 3, 32, 32), img_size=32)


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(nk.GroupNorm, num_groups=8),
        functools.partial(nk.BatchNorm, eps=1e-3, momentum=0.01),
        functools.partial(nk.InstanceNorm, affine=True),
    ],
    ids=lambda make: make.func.__name__,
)
def test_a_partial_keeps_its_arguments(make):
    model = timm.create_model("resnet18", norm_layer=make)
    for norm in norms(model, make.func):
        assert {k: norm.arguments[k] for k in make.keywords} == make.keywords


def test_the_methods_are_found():
    assert {"batchnorm", "groupnorm", "layernorm2d", "frn", "evonorm-s0"} <= set(methods(*IMAGES))
    assert {"layernorm", "rmsnorm", "dyt", "derf"} <= set(methods(*TOKENS))
    assert "adain" not in methods(*IMAGES)
