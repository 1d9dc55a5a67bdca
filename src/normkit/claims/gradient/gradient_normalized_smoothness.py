"""What is claimed of Newton steps that the gradient's length damps."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

SAMPLES, DIM, RIDGE = 100, 10, 0.005


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
    found = lengths(*data, solver.logistic(*data, torch.zeros(DIM, dtype=torch.float64))[0])
    return (found[1:] / found[:-1])[found[1:] > 1e-12].min()


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
]
