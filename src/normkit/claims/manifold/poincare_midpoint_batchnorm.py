"""What Poincaré ResNet claims of its midpoint."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.manifold import _ball, _frechet

DIM = 8


def points(radius):
    """Points of the ball to one side of the origin, at Euclidean radii."""
    away = randn(64, DIM) + torch.cat([torch.ones(1), torch.zeros(DIM - 1)])
    return radius * away / away.norm(dim=1, keepdim=True)


def distance(seed, midpoint=True):
    """The distance of a middle and the Fréchet mean, as a share of the points' spread about it."""
    x = points(0.5 * torch.rand(64, 1, dtype=torch.float64))
    middle = nk.PoincareMidpointBatchNorm(DIM)._center(x) if midpoint else torch.zeros(DIM, dtype=torch.float64)
    mean = _frechet.mean(x, 1.0)
    return _ball.distance(middle, mean, 1.0) / _ball.distance(x, mean, 1.0).square().mean().sqrt()


CLAIMS = [
    Measured(
        "midpoint",
        says="At radii below a half the midpoint is the Fréchet mean, within 5 % of the points' spread.",
        measure=distance,
        wanted=below(0.05),
        control=partial(distance, midpoint=False),
        against="the origin in place of the midpoint",
        number="share of the spread",
    ),
]
