"""What is claimed of softmax attention over long rows."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn, slope

BOUND = 2.0
LENGTHS = (64, 256, 1024)
ROWS = 16


def largest(bounded=True):
    """The largest weight of rows of each length, a row each, whose scores lie within the bound."""
    maxima = []
    for length in LENGTHS:
        q = torch.ones(1, ROWS, 1, 1, dtype=torch.float64)
        k = BOUND * torch.rand(1, ROWS, length, 1, dtype=torch.float64).mul(2).sub(1)
        k = k if bounded else 10 * randn(1, ROWS, length, 1)
        v = torch.eye(length, dtype=torch.float64).expand(1, ROWS, -1, -1)
        maxima.append(nk.Softmax(1, heads=ROWS, scale=1.0)(q, k, v).amax(-1).flatten())
    return torch.stack(maxima)


def share(seed, bounded=True):
    """The largest weight as a share of exp(2 a) / S."""
    return (largest(bounded).mT * torch.tensor(LENGTHS)).max() / torch.tensor(2 * BOUND).exp()


def slope_error(seed, bounded=True):
    """How far the slope of the largest weight against the length, both as logarithms, is from -1."""
    lengths = torch.tensor(LENGTHS, dtype=torch.float64)
    return abs(slope(lengths.log(), largest(bounded).log().mean(1)) + 1)


UNBOUNDED = "normal scores with a deviation of 10"
CLAIMS = [
    Identity(
        "bounded-weights",
        says="Where scores lie within a, no weight is above exp(2 a) / S.",
        measure=share,
        bound=1.0,
        breaks=partial(share, bounded=False),
        against=UNBOUNDED,
        number="share of the bound",
    ),
    Identity(
        "dispersion",
        says="The largest weight then falls as 1 / S.",
        measure=slope_error,
        bound=0.05,
        breaks=partial(slope_error, bounded=False),
        against=UNBOUNDED,
        number="error of the slope",
    ),
]
