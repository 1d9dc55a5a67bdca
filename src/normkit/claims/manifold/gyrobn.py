"""What gyro normalization claims on the ball of Poincaré."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn
from normkit.manifold import _ball, _frechet


def output(gyro):
    """The batch, moved and scaled: by the operations of the ball, or by those of the flat space."""
    x = _ball.exp0(0.3 * randn(64, 3) + torch.tensor([0.8, 0.2, -0.1], dtype=torch.float64), 1.0)
    if gyro:
        return nk.GyroBN(3).double()(x)
    return (x - x.mean(0)) / x.var(0, correction=0).sum().sqrt() * 0.4


def off_origin(seed, gyro=True):
    """How far the Fréchet mean of the output is from the origin."""
    y, origin = output(gyro), torch.zeros(3, dtype=torch.float64)
    return _ball.distance(_frechet.mean(y, 1.0), origin, 1.0)


def variance_error(seed, gyro=True):
    """How far the variance around the origin is from 1."""
    y = output(gyro)
    return (_ball.distance(y, _frechet.mean(y, 1.0), 1.0).square().mean() - 1).abs()


FLAT = "the operations of flat space"
CLAIMS = [
    Identity(
        "mean",
        says="The Fréchet mean of the normalized batch is the origin.",
        measure=off_origin,
        bound=1e-6,
        breaks=partial(off_origin, gyro=False),
        against=FLAT,
        number="distance",
    ),
    Identity(
        "variance",
        says="Its variance is 1.",
        measure=variance_error,
        bound=1e-3,
        breaks=partial(variance_error, gyro=False),
        against=FLAT,
    ),
]
