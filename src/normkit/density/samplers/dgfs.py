"""Paths of a diffusion to the states, each taken or not.

The step is ``imh-step``.
"""

from __future__ import annotations

from torch import Tensor

from normkit import catalog
from normkit.density._diffusion import Diffusion
from normkit.density._sampler import LogProb, Sampler, State, uniform


def step(x: Tensor, log_prob: LogProb, size: float, flow: Diffusion) -> State:
    """A path to each state is drawn as a bridge, another is proposed, and the weights of both decide."""
    new, ratio = flow.draw(len(x), x)
    step = catalog.card("imh-step").entry
    moves = step(x, log_prob(x), flow.bridge(x), new, log_prob(new), ratio, uniform(x))
    return State(moves.x, moves.accepted)


SAMPLER = Sampler(step, proposes="Diffusion")
