"""What is claimed of a learned mix of amplitudes."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn


def moved(seed, gate=30.0):
    """How far the output is from the input."""
    norm = nk.SCNorm(3).double()
    norm.gate.data = torch.tensor([-gate, gate], dtype=torch.float64)
    x = 2 * randn(4, 3, 8, 8) + 1
    return gap(norm(x), x)


CLAIMS = [
    Identity(
        "identity",
        says="With all weight on the raw amplitudes it is the identity, up to the floor.",
        measure=moved,
        bound=2e-5,
        breaks=partial(moved, gate=0.0),
        against="a gate of 0",
    )
]
