"""What the paper of layer normalization claims."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import change, cosine, gradient, randn

SMALL = "eps of 1e-5 and rows of size 1e-3"


def moved(seed, eps=0.0, size=1.0):
    """What changes when rows are scaled and shifted."""
    x = size * randn(8, 16)
    return change(nk.LayerNorm(16, eps=eps, affine=False), x, 3 * x + 7 * size)


def gradient_sum(seed, norm=nk.LayerNorm):
    """The largest sum of a row's gradient, as a share of its length."""
    slope = gradient(norm(16, eps=0.0, affine=False), randn(8, 16))
    return (slope.sum(-1).abs() / slope.norm(dim=-1)).max()


def radial(seed, eps=0.0, size=1.0):
    """The largest cosine of a centred row and its gradient."""
    x = size * randn(8, 16)
    return cosine(gradient(nk.LayerNorm(16, eps=eps, affine=False), x), x - x.mean(-1, keepdim=True))


CLAIMS = [
    Identity(
        "shift-and-scale",
        says="Shift and scale of a row do not matter.",
        measure=moved,
        bound=1e-10,
        breaks=partial(moved, eps=1e-5, size=1e-3),
        against=SMALL,
    ),
    Identity(
        "gradient-sum",
        says="The gradient of a row sums to 0.",
        measure=gradient_sum,
        bound=1e-10,
        breaks=partial(gradient_sum, norm=nk.RMSNorm),
        against="RMSNorm",
        number="sum over length",
    ),
    Identity(
        "gradient-orthogonal",
        says="The gradient of a row is orthogonal to the centred row.",
        measure=radial,
        bound=1e-10,
        breaks=partial(radial, eps=1e-5, size=1e-3),
        against=SMALL,
        number="cosine",
    ),
]
