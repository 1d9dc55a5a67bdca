"""Steps to any side, without a force, each taken or not.

The step is ``stochastic-flow-metropolis``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    """Take one step of every chain."""
    metropolis = catalog.card("stochastic-flow-metropolis").entry
    draws = torch.randn_like(x)[None], uniform(x)[None]
    new = metropolis(x, *draws, energy=energy(log_prob), step_size=size).y
    return State(new, (new != x).flatten(1).any(1).to(x.dtype))


SAMPLER = Sampler(step, scaled=True, share=0.234)
