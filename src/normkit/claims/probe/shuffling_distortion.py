"""What is claimed of batch norm and the order of samples."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import randn

SAMPLES = 48


def optima(orders, batch_size):
    """The optimum of the batches of some orders, and that of the whole."""
    x, w = randn(SAMPLES, 4), randn(4)
    y = x @ w + 0.5 * randn(SAMPLES)
    several = torch.stack([torch.randperm(SAMPLES) for _ in range(orders)])
    return nk.shuffling_distortion(x, y, several, batch_size=batch_size)


def angle(seed, orders, batch_size=4):
    """The angle of both optima."""
    torch.manual_seed(seed)
    one = optima(orders, batch_size)
    direction = one.optimum / one.optimum.norm()
    along = one.distorted @ direction
    return torch.atan2((one.distorted - along * direction).norm(), along)


def difference(seed, batch_size=4):
    """The angle of one order less that of 200."""
    return angle(seed, 1, batch_size) - angle(seed, 200, batch_size)


def gap(seed, batch_size=SAMPLES):
    """The relative gap of the optima."""
    return optima(20, batch_size).gap


CLAIMS = [
    Measured(
        "one-order",
        says="Shuffling once distorts the optimum more than shuffling every epoch.",
        measure=difference,
        wanted=above(0.01),
        control=partial(difference, batch_size=SAMPLES),
        against="one batch of all samples",
        number="difference of the angles",
        draws=20,
        rule="mean",
        null=0.0,
    ),
    Measured(
        "many-orders",
        says="Shuffling every epoch distorts it too.",
        measure=partial(angle, orders=200),
        wanted=above(1e-3),
        control=partial(angle, orders=200, batch_size=SAMPLES),
        against="one batch of all samples",
        number="angle",
    ),
    Measured(
        "whole-batch",
        says="With one batch of all samples nothing is distorted.",
        measure=gap,
        wanted=below(1e-10),
        control=partial(gap, batch_size=4),
        against="batches of 4",
        number="relative gap",
    ),
]
