"""What AF-KAN claims of its norm."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

ACTIVATIONS = (F.silu, F.gelu, F.relu, torch.tanh, F.softplus)


def inside(seed, normalized=True):
    """The least share, over five activations, of inputs inside of the basis' support, [0, 1]."""
    norm, x = nk.TensorMinMaxNorm(), 2 * randn(64, 16)
    inputs = [norm(activation(x)) if normalized else activation(x) for activation in ACTIVATIONS]
    return min(((y >= 0) & (y <= 1)).double().mean().item() for y in inputs)


CLAIMS = [
    Measured(
        "one-range",
        says="All inputs of the basis lie in one range, whatever the activation.",
        measure=inside,
        wanted=above(1.0),
        control=partial(inside, normalized=False),
        against="no norm",
        number="share inside",
    )
]
