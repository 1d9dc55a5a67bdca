"""What DeepNet claims of the update of a deep model."""

import math
from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

DEPTHS, DIM = (10, 40, 160), 16


def update(placement, depth, rate=1e-3):
    """How far one small step of SGD moves the output of a stack, a root mean square."""
    sizes = {"dim": DIM, "heads": 2, "hidden": 32, "depth": depth}
    layers = [nk.TransformerLayer(placement=placement, layer=layer, **sizes) for layer in range(depth)]
    model, x = nn.Sequential(*layers).double(), randn(2, 6, DIM)
    weights = list(model.parameters())
    y = model(x)
    slopes = torch.autograd.grad((y * torch.randn_like(y)).mean(), weights)
    with torch.no_grad():
        for weight, step in zip(weights, slopes, strict=True):
            weight.sub_(rate * step)
        return (model(x) - y).square().mean().sqrt()


def growth(seed, placement="deepnorm"):
    """The slope of the logarithm of this update against that of the depth."""
    return slope([math.log(depth) for depth in DEPTHS], [update(placement, depth).log() for depth in DEPTHS])


CLAIMS = [
    Measured(
        "update-of-all",
        says="One step on all parameters, those of norms too, moves the output alike from 10 to 160 layers.",
        measure=growth,
        wanted=below(0.2),
        control=partial(growth, placement="pre-norm"),
        against="pre-norm",
        number="slope of the logarithms",
        draws=3,
    ),
]
