"""One of 15 samples of a flow and the state itself, drawn by their weights.

The step is ``isir-step``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, uniform

PARTICLES = 16


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    """Take one step of every chain."""
    new = flow.sample(len(x) * (PARTICLES - 1)).to(x.dtype)
    rows = torch.cat([x.unsqueeze(1), new.unflatten(0, (len(x), -1))], 1)
    weights = (law(rows.flatten(0, 1)).unflatten(0, (len(x), -1)) for law in (log_prob, flow.log_prob))
    moves = catalog.card("isir-step").entry(rows, *weights, uniform(x))
    return State(moves.x, (moves.index > 0).to(x.dtype))


SAMPLER = Sampler(step, proposes="Flow")
