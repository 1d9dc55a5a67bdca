"""What flows of rigid bodies claim of their density on rotations."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

LAYERS = 3


def directions():
    """What each layer moves points towards."""
    v = randn(LAYERS, 4)
    return 0.7 * v / (1 + v.norm(dim=1, keepdim=True))


def log_density(x, layers):
    """The logarithm of the density of quaternions, over that of even ones."""
    module, total = nk.DoubleMoebius(), torch.zeros(len(x), dtype=torch.float64)
    for w in layers:
        x, log_det = module(x, w.expand_as(x))
        total = total + log_det
    return total


def single(x, layers):
    """The same of one plain Moebius map."""
    w = layers[0]
    return 3 * ((1 - w.square().sum()) / (w - x).square().sum(1)).log()


def unevenness(seed, density=log_density):
    """The largest difference of the densities of a quaternion and of its opposite, which is the same rotation."""
    x, layers = F.normalize(randn(1000, 4)), directions()
    return (density(x, layers) - density(-x, layers)).abs().max()


def integral_error(seed, power=1.0):
    """How far the integral over rotations is from 1, in standard errors of 20,000 even ones."""
    terms = (power * log_density(F.normalize(randn(20_000, 4)), directions())).exp()
    return (terms.mean() - 1).abs() / (terms.std() / len(terms) ** 0.5)


CLAIMS = [
    Measured(
        "even",
        says="The density of q and of -q, which are one rotation, is the same.",
        measure=unevenness,
        wanted=below(1e-10),
        control=partial(unevenness, density=single),
        against="a plain Moebius map",
        number="difference of the logarithms",
    ),
    Measured(
        "integral",
        says="The density is exact: its integral over rotations is 1.",
        measure=integral_error,
        wanted=below(3.0),
        control=partial(integral_error, power=0.5),
        against="half of the log-determinant",
        number="error in standard errors",
    ),
]
