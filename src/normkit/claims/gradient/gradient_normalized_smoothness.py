"""What is claimed of Newton steps that the gradient's length damps."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

SAMPLES, DIM, RIDGE = 100, 10, 0.005
MOST, GOAL = 1000, 1e-6  # steps, and the share of the gradient that is to be left


def problem():
    """Samples of unlike features, and labels that a direction explains but for some noise."""
    features = randn(SAMPLES, DIM) * torch.logspace(0, -1, DIM, dtype=torch.float64)
    return features, torch.sign(features @ randn(DIM) + 0.3 * randn(SAMPLES))


def lengths(features, labels, iterates):
    """The length of the gradient at each iterate."""
    signed = labels[:, None] * features
    slopes = -(torch.sigmoid(-iterates @ signed.mT) @ signed) / SAMPLES + 2 * RIDGE * iterates
    return slopes.norm(dim=1)


def last_factor(seed, hessian="exact"):
    """The least factor by which a step shrinks the gradient, before it is at the rounding of float64."""
    data = problem()
    solver = nk.GradientNormalizedSmoothness(hessian=hessian, steps=40)
    norms = lengths(*data, solver.logistic(*data, torch.zeros(DIM, dtype=torch.float64))[0])
    return (norms[1:] / norms[:-1])[norms[1:] > 1e-12].min()


def slowness(seed, adaptive=True):
    """Steps to a millionth of the gradient over those of gradient descent at its best rate; the worst Hessian."""
    features, labels = problem()
    start = torch.zeros(DIM, dtype=torch.float64)
    goal = GOAL * lengths(features, labels, start[None])[0]
    best = min(descent(features, labels, rate, goal) for rate in (1, 2, 4, 8, 16, 32))
    counts = []
    for hessian in ("exact", "fisher", "zero"):
        solver = nk.GradientNormalizedSmoothness(
            gamma=1.0 if adaptive else 0.01, adaptive=adaptive, steps=min(2 * best + 1, MOST), hessian=hessian
        )
        iterates = solver.logistic(features, labels, start)[0]
        below_goal = (lengths(features, labels, iterates) <= goal).nonzero()
        counts.append(int(below_goal[0]) if len(below_goal) else torch.inf)
    return max(counts) / best


def descent(features, labels, rate, goal):
    """The number of steps of gradient descent to a length of the gradient."""
    signed, x = labels[:, None] * features, torch.zeros(DIM, dtype=torch.float64)
    for step in range(MOST):
        slope = -(torch.sigmoid(-signed @ x) @ signed) / SAMPLES + 2 * RIDGE * x
        length = slope.norm()
        if length <= goal or length > 100:
            return step if length <= goal else MOST
        x = x - rate * slope
    return MOST


CLAIMS = [
    Measured(
        "superlinear",
        says="With the exact Hessian it ends faster than linearly: a step shrinks the gradient to a tenth or less.",
        measure=last_factor,
        wanted=below(0.1),
        control=partial(last_factor, hessian="zero"),
        against="no Hessian",
        number="least factor of a step",
        reach="proxy",
    ),
    Measured(
        "untuned",
        says="Without tuning it takes twice the steps of gradient descent at its best rate at most, with any Hessian.",
        measure=slowness,
        wanted=below(2.0),
        control=partial(slowness, adaptive=False),
        against="a fixed gamma of 0.01",
        number="share of the steps",
        draws=3,
        reach="proxy",
    ),
]
