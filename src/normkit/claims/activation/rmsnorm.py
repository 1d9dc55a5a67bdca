"""What the paper of RMSNorm claims."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import change, cosine, gradient, randn


def scaled(seed, shift=0.0):
    """What changes when rows are multiplied by 3, or shifted."""
    x = randn(8, 16)
    return change(nk.RMSNorm(16, eps=0.0, affine=False), x, 3 * x + shift)


def radial(seed, eps=0.0, size=1.0):
    """The largest cosine of a row and its gradient."""
    x = size * randn(8, 16)
    return cosine(gradient(nk.RMSNorm(16, eps=eps, affine=False), x), x)


CLAIMS = [
    Identity(
        "scale",
        says="A positive scale of a row does not matter.",
        measure=scaled,
        bound=1e-10,
        breaks=partial(scaled, shift=1.0),
        against="rows shifted too",
    ),
    Identity(
        "gradient-orthogonal",
        says="The gradient of a row is orthogonal to it.",
        measure=radial,
        bound=1e-10,
        breaks=partial(radial, eps=1e-6, size=1e-3),
        against="eps of 1e-6 and rows of size 1e-3",
        number="cosine",
    ),
]
