"""What BC-ResNet claims of its block."""

from functools import partial

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import normkit as nk
from normkit.claims.kinds import Measured, below

WIDTH, SHAPE = 40, (2, 40, 40, 100)


def plain():
    """A residual block of two convolutions of 3 by 3, each with a batch norm."""
    parts = [(nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(*parts[0], *parts[1])


def costs(block):
    """Parameters, and multiply-adds of a pass."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        block(torch.randn(SHAPE))
    return torch.tensor([sum(p.numel() for p in block.parameters()), counter.get_total_flops()])


def broadcast():
    """The block of BC-ResNet."""
    return nk.BroadcastResidual(WIDTH)


def share(seed, block=broadcast):
    """The larger of both costs as a share of the plain block's."""
    return (costs(block()) / costs(plain())).max()


CLAIMS = [
    Measured(
        "cost",
        says="It has at most half the parameters and multiply-adds of a residual block in two dimensions.",
        measure=share,
        wanted=below(0.5),
        control=partial(share, block=plain),
        against="the plain block",
        number="share",
        draws=1,
    )
]
