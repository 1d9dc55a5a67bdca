"""Metropolis steps as a layer of a flow, with the change of energy in the place of the determinant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import Energy, energy_of
from normkit.statistics import reals

NAME = "stochastic-flow-metropolis"


class Jumped(NamedTuple):
    """States after the steps, and the log ratio of backward to forward path probability."""

    y: Tensor
    log_det: Tensor


@method(
    NAME,
    paper="Stochastic Normalizing Flows (Wu et al., 2020), arXiv 2002.06707",
    shape="N C",
    inputs={"noise": "steps N C", "uniform": "steps N : unit"},
    example={"energy": "double-well", "steps": 2},
)
def stochastic_flow_metropolis(
    x: Tensor,
    noise: Tensor,
    uniform: Tensor,
    *,
    energy: str | Energy,
    steps: int = 1,
    step_size: float = 0.01,
    coefficients: Sequence[float] | None = None,
) -> Jumped:
    """Try random moves, keep those that the energy allows, and return what they do to the log density.

    For flows to an energy of several modes that has no gradient, or a costly one. In many dimensions random moves must
    be short to be taken; there ``stochastic-flow-langevin`` follows the force.

    It comes between the layers of a flow, as :func:`stochastic_flow_langevin`. A move x' = x + step_size noise is taken
    where

        uniform < exp(energy(x) - energy(x')),    and in the end  log_det = energy(y) - energy(x)

    Args:
        x: the samples, (N, D).
        noise: normal numbers, (steps, N, D).
        uniform: random numbers of [0, 1), (steps, N).
        energy: a callable (N, D) -> (N,), or ``"double-well"``: a d + b d^2 + c d^4 + |rest|^2 / 2 with d the first
            coordinate. In units of the temperature.
        steps: how many.
        step_size: the scale of a move.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    Returns ``y`` (N, D) and ``log_det`` (N,). Which moves are taken carries no gradient.

    Stochastic Normalizing Flows (Wu et al., 2020), arXiv 2002.06707.
    """
    steps = check.size(NAME, "steps", steps)
    check.number(NAME, "step_size", step_size, 0.0, open_low=True)
    plain, state = energy_of(NAME, energy, coefficients), reals(NAME, "x", x, (None, None))
    draws = reals(NAME, "noise", noise, (steps, *x.shape), x)
    chances = reals(NAME, "uniform", uniform, (steps, len(x)), x)
    first = now = plain(state)
    for draw, chance in zip(draws, chances, strict=True):
        proposal = state + step_size * draw
        cost = plain(proposal)
        move = chance.log() < now - cost
        state, now = torch.where(move.unsqueeze(1), proposal, state), torch.where(move, cost, now)
    return Jumped(state.to(x.dtype), (now - first).to(x.dtype))
