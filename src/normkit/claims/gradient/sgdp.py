"""What the paper of AdamP claims of the length of weights."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn


def growth_error(seed, kind=nk.SGDP):
    """How far a row's squared length grows otherwise than by the squared step, relative to that, over 5 steps."""
    weight = randn(6, 32).requires_grad_()
    optimizer, worst = kind([weight], lr=0.1, momentum=0.9), 0.0
    for _ in range(5):
        before, slope = weight.detach().clone(), randn(6, 32)
        unit = before / before.norm(dim=1, keepdim=True)
        weight.grad = slope - (slope * unit).sum(1, keepdim=True) * unit
        optimizer.step()
        after, step = (x.square().sum(1) for x in (weight.detach(), weight.detach() - before))
        worst = max(worst, ((after - before.square().sum(1) - step) / step).abs().max().item())
    return worst


CLAIMS = [
    Measured(
        "second-order-growth",
        says="A weight's squared length grows by the squared step alone.",
        measure=growth_error,
        wanted=below(1e-6),
        control=partial(growth_error, kind=torch.optim.SGD),
        against="SGD with momentum",
        number="relative error",
    )
]
