"""What Fixup claims of the first step."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

CHANNELS, RATE = 8, 1e-6
DEPTHS = (20, 63, 200)


def change(depth, task, scaled, scalars):
    """How far the first step moves the logits of a network, whose classifier is random.

    Fixup's own classifier starts at 0, so that the first step moves nothing else.
    """
    blocks = nn.Sequential(
        *(nk.FixupBlock(CHANNELS, num_layers=depth if scaled else None) for _ in range(depth))
    ).double()
    x, classifier = task
    labels = torch.arange(len(x)) % 10

    def logits():
        return F.linear(blocks(x).mean((2, 3)), classifier)

    before = logits()
    F.cross_entropy(before, labels).backward()
    with torch.no_grad():
        for parameter in blocks.parameters():
            rate = RATE if parameter.dim() == 4 else RATE / 10 if scalars else 0.0
            parameter.sub_(rate * parameter.grad)
        return (logits() - before).norm()


def depth_slope(seed, scaled=True, scalars=False):
    """The slope of the change against the depth, both as logarithms."""
    task = randn(8, CHANNELS, 6, 6), randn(10, CHANNELS)
    changes = torch.stack([change(depth, task, scaled, scalars) for depth in DEPTHS])
    return abs(slope(torch.tensor(DEPTHS).double().log(), changes.log()))


CLAIMS = [
    Measured(
        "first-step",
        says="The first step of the weights moves a network of 200 blocks as much as one of 20.",
        measure=depth_slope,
        wanted=below(0.2),
        control=partial(depth_slope, scaled=False),
        against="He's start without the factor of the depth",
        number="slope against the depth",
        draws=3,
    ),
    Measured(
        "first-step-scalars",
        says="The same where the scalars step too, at a tenth of the rate.",
        measure=partial(depth_slope, scalars=True),
        wanted=below(0.2),
        control=partial(depth_slope, scaled=False, scalars=True),
        against="He's start without the factor of the depth",
        number="slope against the depth",
        draws=3,
    ),
]
