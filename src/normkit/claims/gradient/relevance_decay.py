"""What is claimed of decay that spares relevant weights."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

SIZE, GAMMA, STEPS, LR = 20, 0.05, 2000, 0.1


def trained(alpha, gamma=GAMMA):
    """A quadratic's minimizer, half of whose coordinates do not count: its start, where it ends, and the minimum."""
    start, goal = randn(2 * SIZE), 1 + randn(SIZE).abs()
    weight = start.clone().requires_grad_()
    if alpha is None:
        optimizer = torch.optim.SGD([weight], lr=LR, weight_decay=2 * gamma)
    else:
        optimizer = nk.RelevanceDecay([weight], lr=LR, gamma=gamma, alpha=alpha)
    for _ in range(STEPS):
        optimizer.zero_grad()
        ((weight[:SIZE] - goal).square().sum() / 2 + 0 * weight[SIZE:].sum()).backward()
        optimizer.step()
    return start, weight.detach(), goal


def left(seed, alpha=1.0, gamma=GAMMA):
    """The size of coordinates that do not count, as a share of their start."""
    start, end, _ = trained(alpha, gamma)
    return end[SIZE:].norm() / start[SIZE:].norm()


def bias(seed, alpha=1.0):
    """The error of those that count, as a share of plain decay's."""
    errors = []
    for own in (alpha, None):
        torch.manual_seed(seed)
        _, end, goal = trained(own)
        errors.append((end[:SIZE] - goal).norm())
    return errors[0] / errors[1]


CLAIMS = [
    Measured(
        "irrelevant",
        says="Coordinates that the loss does not depend on shrink to a hundredth of their start or less.",
        measure=left,
        wanted=below(0.01),
        control=partial(left, gamma=0.0),
        against="no decay",
        number="share of the start",
        draws=3,
    ),
    Measured(
        "bias",
        says="The others have a tenth of plain decay's error or less, at the end, where their gradients are small too.",
        measure=bias,
        wanted=below(0.1),
        control=partial(bias, alpha=1e9),
        against="a decay of all alike",
        number="share of plain decay's error",
        draws=3,
    ),
    Measured(
        "bias-small-alpha",
        says="The same where a gradient counts from 0.001 on, not from 1.",
        measure=partial(bias, alpha=1e-3),
        wanted=below(0.1),
        control=partial(bias, alpha=1e9),
        against="a decay of all alike",
        number="share of plain decay's error",
        draws=3,
    ),
]
