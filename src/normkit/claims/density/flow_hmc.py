"""What is claimed of Hamiltonian chains among the latents of a flow."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.density._wells import CHAINS, DOUBLE, SINGLE, correlation_time, fitted
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

LEAPS = 5  # a trajectory takes one evaluation more
SIZES = (0.15, 0.3, 0.6)


def best(flow, coefficients):
    """The least correlation time over step sizes."""
    moves = [
        nk.FlowHMC(flow, energy="double-well", step_size=size, steps=LEAPS, coefficients=list(coefficients)).double()
        for size in SIZES
    ]
    return min(
        correlation_time(lambda x, move=move: move(x, randn(CHAINS, 2), torch.rand(CHAINS).double()).x)
        for move in moves
    )


@torch.no_grad()
def gain(seed, coefficients=DOUBLE):
    """The effective samples an evaluation, over those of the same chain without a flow, each at its best step size."""
    with torch.enable_grad():
        flow = fitted(coefficients)
    return best(2, coefficients) / best(flow, coefficients)


CLAIMS = [
    Measured(
        "double-well",
        says="In a double well it gives three times the effective samples at equal cost, or more.",
        measure=gain,
        wanted=above(3.0),
        control=partial(gain, coefficients=SINGLE),
        against="a single well",
        number="effective samples over those without a flow",
        draws=2,
    )
]
