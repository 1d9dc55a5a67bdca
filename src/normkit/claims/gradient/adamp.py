"""What AdamP claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, Trained, below
from normkit.claims.measures import cosine, randn
from normkit.claims.steps import grown


def radial(seed, kind=nk.AdamP):
    """The largest cosine of a row and its step, where gradients stand upright on the weight."""
    weight = randn(6, 32).requires_grad_()
    optimizer, worst = kind([weight], lr=1e-2), 0.0
    for _ in range(5):
        before, slope = weight.detach().clone(), randn(6, 32) * torch.logspace(-1, 1, 32)
        unit = before / before.norm(dim=1, keepdim=True)
        weight.grad = slope - (slope * unit).sum(1, keepdim=True) * unit
        optimizer.step()
        worst = max(worst, cosine(weight.detach() - before, before))
    return worst


CLAIMS = [
    Measured(
        "no-radial-part",
        says="The projection removes the radial part of a step.",
        measure=radial,
        wanted=below(1e-6),
        control=partial(radial, kind=torch.optim.Adam),
        against="Adam",
        number="cosine of step and weight",
    ),
    Trained(
        "lengths",
        says="Behind batch norms weights grow by 0.3 of what they grow under AdamW, or less.",
        measure=partial(grown, name="adamp", lr=0.01),
        wanted=below(0.3),
        control=partial(grown, name="adamw", lr=0.01, permute=True),
        against="AdamW from another start",
        number="share of the growth",
        null=1.0,
        bed="perceptron",
    ),
]
