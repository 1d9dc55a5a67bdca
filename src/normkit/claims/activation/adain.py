"""What AdaIN's paper claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.measures import gap, randn


def statistics_error(seed, eps, styled=True):
    """How far the output's means and deviations are from the style's."""
    content, style = 2 * randn(2, 3, 16, 16) + 1, 3 * randn(2, 3, 12, 20) - 2
    y = nk.AdaIN(3, eps=eps)(content, style) if styled else nk.InstanceNorm(3, eps=eps)(content)
    return max(gap(a, b) for a, b in zip(moments(y), moments(style), strict=True))


def moments(x):
    """Mean and deviation over space."""
    return x.mean((2, 3)), x.var((2, 3), correction=0).sqrt()


def gram_ratio(seed, styled=True):
    """By how much the Gram distance to the style falls; textures are correlated noise, features the channels."""

    def texture():
        smooth = torch.nn.functional.avg_pool2d(randn(1, 8, 32, 32), 3, stride=1)
        mixed = smooth + 0.2 * torch.einsum("oc,nchw->nohw", randn(8, 8), smooth)
        return randn(8).exp()[:, None, None] * (mixed + randn(8)[:, None, None])

    def gram(x):
        flat = x.flatten(2)
        return flat @ flat.mT / flat.shape[-1]

    content, style = texture(), texture()
    y = nk.AdaIN(8)(content, style) if styled else content
    return (gram(content) - gram(style)).norm() / (gram(y) - gram(style)).norm()


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
    Measured(
        "gram-distance",
        says="The Gram distance to the style falls by an order of magnitude, in the median.",
        measure=gram_ratio,
        wanted=above(10.0),
        control=partial(gram_ratio, styled=False),
        against="the content as it is",
        number="distance before over after",
        draws=20,
        rule="median",
        reach="proxy",
    ),
]
