"""What AdaIN's paper claims."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn


def statistics_error(seed, eps, styled=True):
    """How far the output's means and deviations are from the style's."""
    content, style = 2 * randn(2, 3, 16, 16) + 1, 3 * randn(2, 3, 12, 20) - 2
    y = nk.AdaIN(3, eps=eps)(content, style) if styled else nk.InstanceNorm(3, eps=eps)(content)
    return max(gap(a, b) for a, b in zip(moments(y), moments(style), strict=True))


def moments(x):
    """Mean and deviation over space."""
    return x.mean((2, 3)), x.var((2, 3), correction=0).sqrt()


CLAIMS = [
    Identity(
        "statistics",
        says="Each channel of the output has the mean and the deviation of the style's channel.",
        measure=partial(statistics_error, eps=1e-5),
        bound=1e-5,
        breaks=partial(statistics_error, eps=1e-5, styled=False),
        against="instance norm, without the style",
        draws=20,
    ),
    Identity(
        "only-eps",
        says="What is missing of the style's deviation is eps alone.",
        measure=partial(statistics_error, eps=1e-12),
        bound=1e-9,
        breaks=partial(statistics_error, eps=1e-5),
        against="eps of 1e-5",
        draws=20,
    ),
]
