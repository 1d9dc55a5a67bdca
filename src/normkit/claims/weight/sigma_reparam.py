"""What sigma-reparametrization claims."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn


def off_by(seed):
    """How far the largest singular value is from gamma, after 200 steps of power iteration."""
    raw, module = randn(24, 16), nk.SigmaReparam((24, 16), gamma_init=1.0).double()
    module.gamma.data.fill_(1.7)
    for _ in range(200):
        weight = module(raw)
    return (torch.linalg.matrix_norm(weight, 2) - module.gamma).abs()


def plain(seed):
    """The same of the raw matrix."""
    return (torch.linalg.matrix_norm(randn(24, 16), 2) - 1.7).abs()


CLAIMS = [
    Identity(
        "sigma",
        says="The weight's largest singular value is gamma.",
        measure=off_by,
        bound=1e-3,
        breaks=plain,
        against="the raw matrix",
        number="|sigma - gamma|",
    )
]
