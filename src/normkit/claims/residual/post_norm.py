"""What is claimed of early layers' gradients under post-norm."""

import math
from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn, slope
from normkit.claims.residual._depth import gradients

DEPTH = 24


def attended(kind):
    """The gradients of the feedforward layers of a stack with attention."""
    sizes = {"dim": 32, "heads": 4, "hidden": 64, "depth": DEPTH}
    layers = [nk.TransformerLayer(placement=kind.card.name, layer=layer, **sizes) for layer in range(DEPTH)]
    y = nn.Sequential(*layers).double()(randn(4, 16, 32))
    if kind is nk.PreNorm:
        y = nn.functional.layer_norm(y, (32,))
    slopes = torch.autograd.grad((y * torch.randn_like(y)).sum(), [layer.feedforward.down.weight for layer in layers])
    return torch.stack([value.norm() for value in slopes])


def share(seed, kind=nk.PostNorm, attention=False):
    """The slope of the logarithm of the gradient against the layer, as a share of log(2) / 2."""
    logs = (attended(kind) if attention else gradients(kind, DEPTH)).log()
    return slope(range(DEPTH), logs) / (math.log(2) / 2)


CLAIMS = [
    Measured(
        f"early-gradients{name}",
        says=f"A gradient shrinks as 2^(-n/2) with the n layers behind it, at half of that rate or more; {made}.",
        measure=partial(share, attention=attention),
        wanted=above(0.5),
        control=partial(share, kind=nk.PreNorm, attention=attention),
        against="pre-norm",
        number="share of the rate",
        draws=5,
    )
    for name, attention, made in (
        ("", False, "two feedforward sublayers"),
        ("-attention", True, "attention and feedforward"),
    )
]
