"""Trajectories of five steps among the latents of a flow.

The step is ``flow-hmc``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    """Take one step of every chain."""
    move = catalog.create("flow-hmc", flow, energy=energy(log_prob), step_size=size, steps=5)
    return State(*move(x, torch.randn_like(x), uniform(x)))


SAMPLER = Sampler(step, proposes="Flow", scaled=True, share=0.651)
