"""Steps along the force of the density, all taken, and so not exact.

The step is ``stochastic-flow-langevin``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    """Take one step of every chain."""
    langevin = catalog.card("stochastic-flow-langevin").entry
    noise = torch.randn_like(x)[None]
    return State(langevin(x, noise, energy=energy(log_prob), step_size=size)[0], x.new_ones(len(x)))


SAMPLER = Sampler(step, scaled=True)
