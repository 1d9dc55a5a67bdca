"""What is claimed of the number of steps to zero error on separable data."""

import math
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import slope

MARGINS, NUMBERS, MOST, RATE = (0.4, 0.2, 0.1, 0.05, 0.025), (25, 100, 400, 1600), 5000, 10.0


def points(n, margin):
    """Points in the plane, of length 1 at most, at least so far from the line that parts them."""
    y = torch.sign(torch.rand(n, dtype=torch.float64) - 0.5)
    across = y * (margin + (0.6 - margin) * torch.rand(n, dtype=torch.float64))
    across[0] = y[0] * margin
    return torch.stack([across, 1.6 * torch.rand(n, dtype=torch.float64) - 0.8], 1), y


def steps(n, margin, normalized, rate=0.1):
    """Steps until no point is on the wrong side."""
    (features, labels), theta = points(n, margin), torch.zeros(2, dtype=torch.float64)
    for step in range(1, MOST):
        if normalized:
            theta = nk.normalized_logistic_gd(features, labels, theta, lr=RATE)
        else:
            share = torch.sigmoid(-labels * (features @ theta))
            theta = theta + rate * (share * labels) @ features / n
        if (labels * (features @ theta) > 0).all():
            return step
    return MOST


def mean_log(n, margin, normalized):
    """The mean of the logarithm of this number."""
    return sum(math.log(steps(n, margin, normalized)) for _ in range(8)) / 8


def margin_error(seed, normalized=True):
    """How far the slope of the steps against one over the margin, both as logarithms, is from 2."""
    return abs(slope([-math.log(m) for m in MARGINS], [mean_log(200, m, normalized) for m in MARGINS]) - 2)


def number_slope(seed, normalized=True):
    """The slope of the steps against the number of points, both as logarithms, without its sign."""
    return abs(slope([math.log(n) for n in NUMBERS], [mean_log(n, 0.1, normalized) for n in NUMBERS]))


def share_of_bound(seed, normalized=True):
    """The largest number of steps as a share of (R / margin)^2, R of 1."""
    return max(steps(n, m, normalized, rate=0.01) * m**2 for m in MARGINS for n in NUMBERS)


PLAIN = "gradient descent with steps of 0.1"
CLAIMS = [
    Measured(
        "bound",
        says="It parts the points within (R / margin)^2 steps, from 25 to 1,600 points.",
        measure=share_of_bound,
        wanted=below(1.0),
        control=partial(share_of_bound, normalized=False),
        against="gradient descent with steps of 0.01",
        number="share of (R / margin)^2",
        draws=3,
    ),
    Measured(
        "margin",
        says="The number of steps grows as (R / margin)^2, on random points of the plane.",
        measure=margin_error,
        wanted=below(0.3),
        control=partial(margin_error, normalized=False),
        against=PLAIN,
        number="|slope - 2|",
        draws=3,
    ),
    Measured(
        "number",
        says="It does not depend on the number of points.",
        measure=number_slope,
        wanted=below(0.1),
        control=partial(number_slope, normalized=False),
        against=PLAIN,
        number="|slope|",
        draws=3,
    ),
]
