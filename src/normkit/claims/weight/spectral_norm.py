"""What spectral normalization claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn


def off_by(seed, calls=20, begun=True):
    """How far the largest singular value is from 1, after calls in training; it begins as torch's does."""
    raw, module = randn(16, 12), nk.SpectralNorm((16, 12)).double()
    if begun:
        module.reset(raw)
    for _ in range(calls):
        module(raw)
    return (torch.linalg.matrix_norm(module.eval()(raw), 2) - 1).abs()


CLAIMS = [
    Identity(
        "sigma",
        says="After 20 calls the weight's largest singular value is 1.",
        measure=off_by,
        bound=1e-3,
        breaks=partial(off_by, calls=0, begun=False),
        against="no iterations",
        number="|sigma - 1|",
    )
]
