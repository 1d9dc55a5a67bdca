"""What is claimed of the cost of group orthogonality."""

import statistics
import time
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

import normkit as nk
from normkit.claims.images import Run, better
from normkit.claims.kinds import Measured, below

FILTERS, GROUPS = 1024, 8


def both(groups, cost):
    """The cost of the loss and its gradient, of groups and of all filters at once, in turn."""
    weight = torch.randn(FILTERS, FILTERS, requires_grad=True)
    costs = [(cost(nk.GroupOrthogonality(groups), weight), cost(nk.GroupOrthogonality(1), weight)) for _ in range(5)]
    return [statistics.median(own) for own in zip(*costs, strict=True)]


def seconds(loss, weight):
    """The processor's time."""
    began = time.process_time()
    loss(weight).backward()
    return time.process_time() - began


def operations(loss, weight):
    """Multiplications and additions of matrix products."""
    with FlopCounterMode(display=False) as counter:
        loss(weight).backward()
    return counter.get_total_flops()


def excess(seed, groups=GROUPS, cost=operations):
    """How far the cost is from an eighth of the full penalty's, as a share of that."""
    own, full = both(groups, cost)
    return abs(GROUPS * own / full - 1)


CLAIMS = [
    Measured(
        "operations",
        says="With 8 groups it takes an eighth of the full penalty's multiplications, of wide layers.",
        measure=excess,
        wanted=below(0.3),
        control=partial(excess, groups=1),
        against="the full penalty",
        number="relative distance from an eighth",
        draws=1,
    ),
    Measured(
        "time",
        says="It takes an eighth of its time, within 30 %.",
        measure=partial(excess, cost=seconds),
        wanted=below(0.3),
        control=partial(excess, groups=1, cost=seconds),
        against="the full penalty",
        number="relative distance from an eighth",
        draws=3,
    ),
    better(
        "helps-groupnorm",
        "With group norm, at a strength of 0.01, it brings half a point or more.",
        "images",
        Run("groupnorm", penalty=True),
        Run("groupnorm"),
        0.5,
        draws=16,
    ),
]
