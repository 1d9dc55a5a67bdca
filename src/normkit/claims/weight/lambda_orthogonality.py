"""What is claimed of maps that may leave the rotations, but only so far."""

import math
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

DIM, THRESHOLD, STEPS = 8, 0.5, 400


def fitted(threshold):
    """The distance of a trained map from orthogonality, and where its error is from the free to the strict one's."""
    x, map_ = randn(400, DIM), torch.linalg.qr(randn(DIM, DIM)).Q + 0.3 * randn(DIM, DIM)
    y = x @ map_.mT + 0.1 * randn(400, DIM)
    left, _, right = torch.linalg.svd(y.mT @ x)
    weight, penalty = (left @ right).requires_grad_(), nk.LambdaOrthogonality(threshold=threshold)
    strict = (x @ weight.detach().mT - y).square().mean()
    free = (x @ torch.linalg.lstsq(x, y).solution - y).square().mean()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        error = (x @ weight.mT - y).square().mean()
        (error + penalty(weight)).backward()
        optimizer.step()
        schedule.step()
    far = (weight.mT @ weight - torch.eye(DIM)).norm()
    return far.item(), ((error - free) / (strict - free)).item()


def off_threshold(seed, threshold=THRESHOLD):
    """How far the distance is from the threshold, as a share of it."""
    return abs(fitted(threshold)[0] / THRESHOLD - 1)


def off_middle(seed, threshold=THRESHOLD):
    """How far the error is from the middle between both, as a share of their distance: at the ends it is 1/2."""
    return abs(fitted(threshold)[1] - 0.5)


CLAIMS = [
    Measured(
        "threshold",
        says="The change of the geometry ends at the threshold.",
        measure=off_threshold,
        wanted=below(0.1),
        control=partial(off_threshold, threshold=math.inf),
        against="an unconstrained map",
        number="relative distance from the threshold",
        draws=3,
    ),
    Measured(
        "between",
        says="The error of the alignment lies between those of the orthogonal and of the free map.",
        measure=off_middle,
        wanted=below(0.49),
        control=partial(off_middle, threshold=math.inf),
        against="an unconstrained map",
        number="distance from their middle",
        draws=3,
    ),
]
