"""The Metropolis-adjusted Langevin algorithm: steps along the force, accepted or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import Energy, energy_of, force
from normkit.statistics import reals

NAME = "mala"


class Walked(NamedTuple):
    """The states after all steps, and which steps were accepted."""

    x: Tensor
    accepted: Tensor


@method(
    NAME,
    paper="On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763",
    shape="N C",
    inputs={"noise": "steps N C", "uniform": "steps N : unit"},
    example={"energy": "double-well", "step_size": 0.05, "steps": 2},
)
def mala(
    x: Tensor,
    noise: Tensor,
    uniform: Tensor,
    *,
    energy: str | Energy,
    step_size: float,
    steps: int = 1,
    temperature: float = 1.0,
    coefficients: Sequence[float] | None = None,
) -> Walked:
    """Walk along the force with noise, and take each step with the probability that keeps the target exact.

    For local moves on an energy with a gradient, between the jumps of ``imh-step`` or ``isir-step``. Alone it stays in
    its mode. Where the energy is badly scaled, walk in the latent space of a flow instead, by ``neutra``.

    With U = -energy / T, g its gradient and h the step size,

        x' = x + h g(x) + sqrt(2 h) noise,    log q(a | b) = -|a - b - h g(b)|^2 / (4 h)
        accept where log(uniform) < U(x') - log q(x'|x) - U(x) + log q(x|x')

    Args:
        x: the states of N chains, (N, D).
        noise: normal numbers, (steps, N, D).
        uniform: random numbers of [0, 1), (steps, N).
        energy: a callable (N, D) -> (N,), or ``"double-well"``: a d + b d^2 + c d^4 + |rest|^2 / 2 with d the first
            coordinate.
        step_size: h.
        steps: how many.
        temperature: T.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    Returns ``x`` (N, D), and ``accepted``, 0 or 1, (steps, N).

    On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763.
    """
    check.number(NAME, "temperature", temperature, 0.0, open_low=True)
    h, steps = check.number(NAME, "step_size", step_size, 0.0, open_low=True), check.size(NAME, "steps", steps)
    plain = energy_of(NAME, energy, coefficients)
    state = reals(NAME, "x", x, (None, None))
    draws = reals(NAME, "noise", noise, (steps, *x.shape), x)
    chances = reals(NAME, "uniform", uniform, (steps, len(x)), x)
    accepted = []
    for draw, chance in zip(draws, chances, strict=True):
        state, move = _step(plain, temperature, state, draw, chance, h)
        accepted.append(move)
    return Walked(state.to(x.dtype), torch.stack(accepted).to(x.dtype))


def _step(
    energy: Energy, temperature: float, x: Tensor, noise: Tensor, uniform: Tensor, h: float
) -> tuple[Tensor, Tensor]:
    proposal = x + h * force(energy, x) / temperature + (2 * h) ** 0.5 * noise
    forth = -(2 * h * noise.square()).sum(1) / (4 * h)
    back = -(x - proposal - h * force(energy, proposal) / temperature).square().sum(1) / (4 * h)
    move = uniform.log() < (energy(x) - energy(proposal)) / temperature + back - forth
    return torch.where(move.unsqueeze(1), proposal, x), move
