"""What is claimed of the variance of networks whose branches are scaled."""

from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

DEPTH, WIDTH, S = 10, 256, 0.8


def linear():
    """A linear sublayer that multiplies the variance by S squared."""
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.normal_(layer.weight, std=S / WIDTH**0.5)
    return layer


def formula_error(seed, scaled=True):
    """How far the variance, averaged over 20 networks, is from (1 + lambda^2 s^2)^n, over three lambdas."""
    n, errors = 2 * DEPTH, []
    for scaling, factor in (("inverse", 1 / n), ("root", n**-0.5), (1.0, 1.0)):
        expected = (1 + (factor if scaled else 1.0) ** 2 * S**2) ** n
        errors.append(abs(sum(variance(scaling) for _ in range(20)) / 20 / expected - 1))
    return max(errors)


def variance(scaling):
    """The variance behind a network of random weights, of inputs with a variance of 1."""
    x = randn(32, WIDTH)
    with torch.no_grad():
        for layer in range(DEPTH):
            sizes = {"dim": WIDTH, "layer": layer, "depth": DEPTH, "scaling": scaling}
            x = nk.ResidualScaling(**sizes, attention=linear(), feedforward=linear()).double()(x)
    return x.square().mean()


CLAIMS = [
    Measured(
        "variance",
        says="At the start the variance grows as (1 + lambda^2 s^2)^n.",
        measure=formula_error,
        wanted=below(0.05),
        control=partial(formula_error, scaled=False),
        against="the formula with a lambda of 1",
        number="relative error",
        draws=3,
    )
]
