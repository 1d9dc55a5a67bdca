"""Iterated sampling importance resampling: one of several samples of a flow, or the old state among them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NAME = "isir-step"


class Particles(NamedTuple):
    """The states after a step, which particles they are, and the effective number of particles."""

    x: Tensor
    index: Tensor  # type: ignore[assignment]
    ess: Tensor


@method(
    NAME,
    paper="On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763",
    shape="N K C",
    inputs={"log_target": "N K", "log_proposal": "N K", "uniform": "N : unit"},
    invariant=("shift of the logs",),
)
def isir_step(
    particles: Tensor, log_target: Tensor, log_proposal: Tensor, uniform: Tensor, *, temperature: float = 1.0
) -> Particles:
    """Choose one of K particles with the weight of target over proposal.

    For a flow that is nearly right: with the current state among the particles, and K - 1 fresh samples of the flow,
    the chain samples the target exactly for every K. ``imh-step`` needs one proposal a step.

    With T the temperature,

        w = softmax(log_target / T - log_proposal),    index = how many cumulative weights are <= uniform
        ess = 1 / sum w^2

    A row whose weights are not numbers is chosen from evenly.

    Args:
        particles: (N, K, D), the current state of each chain at index 0.
        log_target, log_proposal: of the particles, under the target and under the flow, (N, K).
        uniform: random numbers of [0, 1), (N,).
        temperature: T.

    Returns ``x`` (N, D), ``index`` int64 (N,) and ``ess`` (N,), from 1 to K.

    On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763.

    Differs from the authors' code in: the index follows from ``uniform``, where they draw a multinomial.
    """
    check.number(NAME, "temperature", temperature, 0.0, open_low=True)
    points = reals(NAME, "particles", particles, (None, None, None))
    if not particles.shape[1]:
        raise ValueError(f"{NAME}: particles must have at least one a chain, but its shape is {tuple(particles.shape)}")
    shape = particles.shape[:2]
    log_weight = reals(NAME, "log_target", log_target, shape, particles) / temperature
    weight = torch.softmax(log_weight - reals(NAME, "log_proposal", log_proposal, shape, particles), 1)
    weight = torch.where(weight.isnan(), 1 / shape[1], weight)
    at = reals(NAME, "uniform", uniform, shape[:1], particles).unsqueeze(1)
    index = (weight.cumsum(1) <= at).sum(1).clamp(max=shape[1] - 1)
    x = points.gather(1, index[:, None, None].expand(-1, 1, points.shape[2])).squeeze(1)
    return Particles(x.to(particles.dtype), index, (1 / weight.square().sum(1)).to(particles.dtype))
