"""What is claimed of the variance of hidden states when norms' outputs shrink with the layer, at the start."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope
from normkit.claims.residual._depth import WIDTH, sublayer

DEPTH = 24


def variances(kind):
    """The variance of the stream behind each block of a network with random weights; without norms, of kind None."""
    x, squares = randn(32, WIDTH), []
    with torch.no_grad():
        for layer in range(DEPTH):
            parts = {"attention": sublayer().double(), "feedforward": sublayer().double()}
            if kind is None:
                for part in parts.values():
                    x = x + part(x)
            else:
                x = kind(dim=WIDTH, layer=layer, depth=DEPTH, **parts).double()(x)
            squares.append(x.square().mean())
    return torch.stack(squares)


def of_power(seed, kind=nk.LayerNormScaling):
    """What a power of the depth leaves unexplained of the logarithm, as a share of what an exponential leaves."""
    logs, depth = variances(kind).log(), torch.arange(1, DEPTH + 1, dtype=torch.float64)
    return left(depth.log(), logs) / left(depth, logs)


def left(x, y):
    """The sum of squares that a straight line leaves."""
    rise = slope(x, y)
    return (y - y.mean() - rise * (x - x.mean())).square().sum()


def share(seed, kind=nk.LayerNormScaling):
    """The growth from the first block to the last, as a share of pre-norm's."""
    own = variances(kind)
    torch.manual_seed(seed)
    other = variances(partial(nk.PreNorm, norm="rmsnorm"))
    return (own[-1] / own[0]) / (other[-1] / other[0])


CLAIMS = [
    Measured(
        "power",
        says="At the start the variance grows as a power of the depth, which fits better than an exponential.",
        measure=of_power,
        wanted=below(1.0),
        control=partial(of_power, kind=None),
        against="no norms",
        number="left by a power over left by an exponential",
    ),
    Measured(
        "growth",
        says="At the start it grows half as much as pre-norm's at most.",
        measure=share,
        wanted=below(0.5),
        control=partial(share, kind=nk.PreNorm),
        against="pre-norm",
        number="share of pre-norm's growth",
    ),
]
