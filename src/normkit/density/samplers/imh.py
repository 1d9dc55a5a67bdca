"""Samples of a flow, each taken or not.

The step is ``imh-step``.
"""

from __future__ import annotations

from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    """Take one step of every chain."""
    new = flow.sample(len(x)).to(x.dtype)
    step = catalog.card("imh-step").entry
    moves = step(x, log_prob(x), flow.log_prob(x), new, log_prob(new), flow.log_prob(new), uniform(x))
    return State(moves.x, moves.accepted)


SAMPLER = Sampler(step, proposes="Flow")
