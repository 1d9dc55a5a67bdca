"""What DeepNet claims of the update of a deep model."""

import math
from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

DEPTHS, DIM = (10, 40, 160), 16


def update(placement, depth, matrices=True, rate=1e-3):
    """How far one small step of SGD, on matrices or on all of a stack, moves its output, a root mean square."""
    sizes = {"dim": DIM, "heads": 2, "hidden": 32, "depth": depth}
    layers = [nk.TransformerLayer(placement=placement, layer=layer, **sizes) for layer in range(depth)]
    model, x = nn.Sequential(*layers).double(), randn(2, 6, DIM)
    weights = [weight for weight in model.parameters() if weight.dim() == 2 or not matrices]
    y = model(x)
    slopes = torch.autograd.grad((y * torch.randn_like(y)).mean(), weights)
    with torch.no_grad():
        for weight, step in zip(weights, slopes, strict=True):
            weight.sub_(rate * step)
        return (model(x) - y).square().mean().sqrt()


def growth(seed, placement="deepnorm", matrices=True):
    """The slope of the logarithm of this update against that of the depth."""
    return slope([math.log(depth) for depth in DEPTHS], [update(placement, depth, matrices).log() for depth in DEPTHS])


def share(seed, placement="deepnorm"):
    """The update at 100 layers as a share of post-norm's."""
    own = update(placement, 100)
    torch.manual_seed(seed + 1)
    return own / update("post-norm", 100)


CLAIMS = [
    Measured(
        "update",
        says="One step on the matrices moves the output alike at any depth, from 10 to 160 layers.",
        measure=growth,
        wanted=below(0.2),
        control=partial(growth, placement="pre-norm"),
        against="pre-norm",
        number="slope of the logarithms",
        draws=3,
    ),
    Measured(
        "update-of-all",
        says="One step on all parameters does, those of the norms too.",
        measure=partial(growth, matrices=False),
        wanted=below(0.2),
        control=partial(growth, placement="pre-norm", matrices=False),
        against="pre-norm",
        number="slope of the logarithms",
        draws=3,
    ),
    Measured(
        "update-post-norm",
        says="At 100 layers a step on the matrices moves it less than under post-norm.",
        measure=share,
        wanted=below(1.0),
        control=partial(share, placement="pre-norm"),
        against="pre-norm",
        number="share of post-norm's update",
        draws=3,
    ),
]
