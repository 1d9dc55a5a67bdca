"""What the paper of self-normalizing networks claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

WIDTH = 512


def off_by(seed, activation=None, depth=32):
    """How far mean and variance behind 32 layers are from 0 and 1, as a share of 0.05 and 0.1."""
    activation, x = activation or nk.SELU(), 0.1 + 1.4**0.5 * randn(WIDTH, WIDTH)
    for _ in range(depth):
        x = activation(x @ randn(WIDTH, WIDTH) / WIDTH**0.5)
    return max(x.mean().abs() / 0.05, (x.var() - 1).abs() / 0.1)


CLAIMS = [
    Measured(
        "fixed-point",
        says="From a mean of 0.1 and a variance of 1.4, mean and variance contract to 0 and 1 in 32 layers.",
        measure=off_by,
        wanted=below(1.0),
        control=partial(off_by, activation=torch.relu),
        against="ReLU",
        number="share of what is allowed",
        draws=5,
    )
]
