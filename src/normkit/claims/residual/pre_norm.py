"""What is claimed of gradients under pre-norm and post-norm."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import slope
from normkit.claims.residual._depth import gradients

DEPTHS = (2, 4, 8, 16, 32)


def slope_error(seed, kind=nk.PreNorm, wanted=-0.5):
    """How far the slope of the last layer's gradient against the depth, both as logarithms, is from a number."""
    logs = torch.stack([gradients(kind, depth)[-1] for depth in DEPTHS]).log()
    return abs(slope(torch.tensor(DEPTHS, dtype=torch.float64).log(), logs) - wanted)


CLAIMS = [
    Measured(
        "last-gradient",
        says="The gradient of the last layer shrinks as one over the root of the depth.",
        measure=slope_error,
        wanted=below(0.15),
        control=partial(slope_error, kind=nk.PostNorm),
        against="post-norm",
        number="|slope + 0.5|",
        draws=5,
    ),
    Measured(
        "last-gradient-post-norm",
        says="Under post-norm it does not depend on the depth.",
        measure=partial(slope_error, kind=nk.PostNorm, wanted=0.0),
        wanted=below(0.15),
        control=partial(slope_error, wanted=0.0),
        against="pre-norm",
        number="|slope|",
        draws=5,
    ),
]
