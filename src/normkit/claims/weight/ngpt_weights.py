"""What nGPT claims of its weights."""

from functools import partial

import torch
from torch import nn

from normkit.claims.kinds import Identity
from normkit.claims.measures import randn
from normkit.weight.ngpt_weights import ngpt_project


def off_by(seed, projected=True):
    """How far the length of a vector is from 1, at most, over 20 steps of SGD."""
    layers = [nn.Linear(6, 12, bias=False).double(), nn.Linear(12, 6, bias=False).double()]
    weights = {layers[0].weight: 1, layers[1].weight: 0}
    ngpt_project(weights)
    optimizer = torch.optim.SGD([*weights], lr=0.1)
    x, target, worst = randn(32, 6), randn(32, 6), torch.zeros(())
    for _ in range(20):
        optimizer.zero_grad()
        (layers[1](layers[0](x).tanh()) - target).square().mean().backward()
        optimizer.step()
        if projected:
            ngpt_project(weights)
        worst = max(worst, *((weight.detach().norm(dim=axis) - 1).abs().max() for weight, axis in weights.items()))
    return worst


CLAIMS = [
    Identity(
        "unit-vectors",
        says="Every vector of the weights has length 1 after each step.",
        measure=off_by,
        bound=1e-6,
        breaks=partial(off_by, projected=False),
        against="without the projection",
        number="largest |length - 1|",
    )
]
