"""What weight conditioning claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn


def fall(seed, spread=4.0):
    """By how much the condition number falls, of a matrix whose rows have scales over decades."""
    raw = randn(24, 32) * torch.logspace(0, spread, 24, dtype=torch.float64)[:, None]
    return torch.linalg.cond(raw) / torch.linalg.cond(nk.WeightConditioning((24, 32))(raw))


CLAIMS = [
    Measured(
        "condition",
        says="The condition number falls by two orders of magnitude where rows have scales over four decades.",
        measure=fall,
        wanted=above(100.0),
        control=partial(fall, spread=0.0),
        against="rows of one scale",
        number="condition before over after",
    )
]
