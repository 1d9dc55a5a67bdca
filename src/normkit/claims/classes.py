"""The claim that a constant map of classes is still seen behind a norm."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity, Measure, above
from normkit.claims.measures import gap, randn

CLASSES = 8


def constant(label: int) -> torch.Tensor:
    """A map of one class everywhere."""
    return F.one_hot(torch.full((1, 6, 6), label), CLASSES).permute(0, 3, 1, 2).double()


def contrast(norm) -> float:
    """How much the output differs between two constant maps."""
    x = randn(1, 4, 6, 6)
    return gap(norm(x, constant(2)), norm(x, constant(5)))


def lost(seed: int) -> float:
    """The same with a convolution of the map and an instance norm of the result."""
    convolution = nn.Conv2d(CLASSES, 4, 3, padding=1, padding_mode="replicate").double()
    instance = nk.InstanceNorm(4)
    return contrast(lambda x, label: x + instance(convolution(label)))


def constant_class(measure: Measure) -> Identity:
    """The claim of a norm whose output has the contrast that is measured."""
    return Identity(
        "constant-class",
        says="A class that is constant over the image is seen in the output.",
        measure=measure,
        bound=above(0.1),
        breaks=lost,
        against="a convolution and an instance norm",
        number="difference between two classes",
    )
