"""What is claimed of normalized gradient descent."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn

RATE = 0.3


def step_error(seed, kind=nk.NormalizedGD):
    """How far a step's length over the rate is from 1, at most, with losses times 1e-6 to 1e6."""
    start, slope, worst = randn(20), randn(20), 0.0
    for power in range(-6, 7):
        weight = start.clone().requires_grad_()
        weight.grad = slope * 10.0**power
        kind([weight], lr=RATE).step()
        worst = max(worst, abs((weight.detach() - start).norm().item() / RATE - 1))
    return worst


CLAIMS = [
    Identity(
        "step-length",
        says="The length of a step does not depend on the gradient's scale.",
        measure=step_error,
        bound=1e-3,
        breaks=partial(step_error, kind=torch.optim.SGD),
        against="SGD",
        number="relative error of the length",
    )
]
