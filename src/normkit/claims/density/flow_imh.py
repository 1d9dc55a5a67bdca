"""What is claimed of a flow's samples as proposals."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.density._wells import CHAINS, DOUBLE, correlation_time, fitted
from normkit.claims.density.flow_hmc import LEAPS, best
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn


@torch.no_grad()
def gain(seed, coefficients=DOUBLE, jump=True):
    """The effective samples an evaluation over those of Hamiltonian chains without a flow."""
    with torch.enable_grad():
        flow = fitted(coefficients)
    plain = best(2, coefficients) * (LEAPS + 1)
    if not jump:
        return plain / best(2, coefficients) / (LEAPS + 1)
    move = nk.FlowIMH(flow, energy="double-well", coefficients=list(coefficients)).double()
    return plain / correlation_time(lambda x: move(x, randn(CHAINS, 2), torch.rand(CHAINS).double()).x)


CLAIMS = [
    Measured(
        "double-well",
        says="In a double well it gives three times the effective samples of Hamiltonian chains, or more.",
        measure=gain,
        wanted=above(3.0),
        control=partial(gain, jump=False),
        against="Hamiltonian chains against themselves",
        number="effective samples an evaluation over theirs",
        draws=2,
    )
]
