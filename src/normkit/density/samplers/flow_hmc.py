"""Trajectories of five steps among the latents of a flow.

The step is ``flow-hmc``. Its size is drawn anew, as the latents of a good flow all turn in the same time: trajectories
of one length may all end where they began. In theory a share of 0.651 is best, which in few dimensions is near to the
size at which leapfrog is unstable.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    """Take one step of every chain."""
    drawn = size * (0.5 + torch.rand(()).item())
    move = catalog.create("flow-hmc", flow, energy=energy(log_prob), step_size=drawn, steps=5)
    return State(*move(x, torch.randn_like(x), uniform(x)))


SAMPLER = Sampler(step, proposes="Flow", scaled=True, share=0.9)
