"""Steps along the force of the density, each taken or not.

The step is ``mala``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    """Take one step of every chain."""
    new = catalog.card("mala").entry(
        x, torch.randn_like(x)[None], uniform(x)[None], energy=energy(log_prob), step_size=size
    )
    return State(new.x, new.accepted[0])


SAMPLER = Sampler(step, scaled=True, share=0.574)
