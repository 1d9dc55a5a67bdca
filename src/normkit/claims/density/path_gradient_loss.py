"""What path gradients claim at the optimum."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn


def at_optimum(seed, estimator="path"):
    """The length of the gradient on a batch, where the flow is the target."""
    shift, scale = randn(4), 0.3 * randn(4)
    module = nk.PathGradientLoss(
        4, estimator=estimator, energy=lambda x: (((x - shift) * (-scale).exp()).square() / 2).sum(-1)
    ).double()
    module.shift.data, module.log_scale.data = shift, scale.clone()
    slopes = torch.autograd.grad(module(randn(16, 4)), [*module.parameters()])
    return torch.cat([slope.flatten() for slope in slopes]).norm()


CLAIMS = [
    Identity(
        "optimum",
        says="The gradient vanishes at the optimum, on every batch.",
        measure=at_optimum,
        bound=1e-12,
        breaks=partial(at_optimum, estimator="reparametrised"),
        against="the reparametrized gradient",
        number="length of the gradient",
    )
]
