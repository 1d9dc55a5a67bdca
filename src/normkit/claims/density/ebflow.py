"""What is claimed of the cost of energy-based flows."""

from functools import partial

import torch

import normkit as nk
from normkit.claims._clock import growth
from normkit.claims.kinds import Measured, below

DIMS = (768, 1536)


def score(module, x):
    """The score-matching objective."""
    return module(x)


def likelihood(module, x):
    """The negative log-likelihood."""
    return -module.log_prob(x).mean()


def slope_of_time(seed, loss=score):
    """The slope of the time of a loss and its gradient against the dimension, both as logarithms."""

    def call_of(dim):
        module, x = nk.EBFlow(dim), torch.randn(16, dim)
        return lambda: loss(module, x).backward()

    return growth(call_of, DIMS)


CLAIMS = [
    Measured(
        "cost",
        says="A step grows as the square of the dimension, from 768 to 1536, and not as its cube.",
        measure=slope_of_time,
        wanted=below(2.3),
        control=partial(slope_of_time, loss=likelihood),
        against="maximum likelihood",
        number="slope of the time",
        draws=2,
    )
]
