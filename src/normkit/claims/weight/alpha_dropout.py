"""What the paper of self-normalizing networks claims of their dropout."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below

MANY = 100_000


def off_by(seed, kind=nk.AlphaDropout):
    """How many standard errors mean and variance are from 0 and 1, at most, over three shares."""
    worst = 0.0
    for share in (0.05, 0.1, 0.5):
        y = kind(p=share)(torch.randn(MANY)).double()
        squares = (y - y.mean()).square()
        mean, var = y.mean() / (y.std() / MANY**0.5), (squares.mean() - 1) / (squares.std() / MANY**0.5)
        worst = max(worst, abs(mean.item()), abs(var.item()))
    return worst


CLAIMS = [
    Measured(
        "moments",
        says="It keeps a mean of 0 and a variance of 1.",
        measure=off_by,
        wanted=below(4.0),
        control=partial(off_by, kind=torch.nn.Dropout),
        against="plain dropout",
        number="standard errors",
    )
]
