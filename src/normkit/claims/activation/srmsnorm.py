"""What SimpleRMSNorm is said to be."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap


def apart(seed, gain=1.0):
    """How far it is from an RMSNorm with a gain, in float32."""
    x, norm = torch.randn(8, 16), nk.RMSNorm(16)
    norm.weight.data.fill_(gain)
    return gap(nk.SRMSNorm(16)(x), norm(x))


CLAIMS = [
    Identity(
        "is-rmsnorm",
        says="It is an RMSNorm with a gain of 1.",
        measure=apart,
        bound=1e-7,
        breaks=partial(apart, gain=2.0),
        against="a gain of 2",
    )
]
