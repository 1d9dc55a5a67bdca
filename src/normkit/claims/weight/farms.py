"""What FARMS claims of the aspect ratio."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

ROWS, ASPECTS = 128, (1, 2, 8)


def plain(weight):
    """The exponent of the whole matrix."""
    rows, columns = weight.shape
    return nk.farms(weight, num_row_samples=rows, q_ratio=columns / rows, sampling_ops_per_dim=1)[0]


def windowed(weight):
    """The exponent of square windows."""
    return nk.farms(weight, num_row_samples=ROWS // 2, q_ratio=1.0, sampling_ops_per_dim=5)[0]


def spread(seed, estimate=windowed):
    """The spread of the exponent over aspect ratios, as a share of the plain estimate's."""
    weights = [randn(ROWS, aspect * ROWS) for aspect in ASPECTS]
    own, other = (torch.stack([*map(way, weights)]) for way in (estimate, plain))
    return (own.max() - own.min()) / (other.max() - other.min())


CLAIMS = [
    Measured(
        "aspect",
        says="The exponent of random matrices does not depend on their aspect ratio, from 1 to 8.",
        measure=spread,
        wanted=below(0.2),
        control=partial(spread, estimate=plain),
        against="the exponent of the whole matrix",
        number="share of the plain estimate's spread",
    )
]
