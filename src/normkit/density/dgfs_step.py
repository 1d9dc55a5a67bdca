"""A step of a diffusion sampler, and what it costs."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NAME = "dgfs-step"


class Step(NamedTuple):
    """The next states, the work of the noise and the cost of the control."""

    next: Tensor
    noise_work: Tensor
    control_cost: Tensor


@method(
    NAME,
    paper="Diffusion Generative Flow Samplers: Improving learning signals through partial trajectory optimization "
    "(Zhang et al., 2024), arXiv 2310.02679",
    shape="B C",
    inputs={"drift": "B C", "noise": "B C"},
)
def dgfs_step(x: Tensor, drift: Tensor, noise: Tensor, *, sigma: float = 1.0, dt: float = 0.01) -> Step:
    """Move each state along its drift with noise, and return the two terms of the path's log weight.

    For drawing the trajectories of a diffusion sampler of an energy, and for their weights, which the two terms add up
    to. Losses on pieces of a trajectory, or on one that another drift drew, need ``dgfs-transition``.

        next = x + sigma dt drift + sigma sqrt(dt) noise
        noise_work = sqrt(dt) sum_d drift noise,    control_cost = dt / 2 sum_d drift^2

    Args:
        x: the states, (B, D).
        drift: at x, (B, D).
        noise: normal numbers, (B, D).
        sigma: the scale of the noise.
        dt: the length of the step.

    Returns ``next`` (B, D), ``noise_work`` and ``control_cost`` (B,).

    Diffusion Generative Flow Samplers (Zhang et al., 2024), arXiv 2310.02679.
    """
    check.number(NAME, "sigma", sigma, 0.0, open_low=True)
    check.number(NAME, "dt", dt, 0.0, open_low=True)
    state = reals(NAME, "x", x, (None, None))
    push, draw = reals(NAME, "drift", drift, x.shape, x), reals(NAME, "noise", noise, x.shape, x)
    moved = state + sigma * dt * push + sigma * dt**0.5 * draw
    work, cost = dt**0.5 * (push * draw).sum(1), dt / 2 * push.square().sum(1)
    return Step(moved.to(x.dtype), work.to(x.dtype), cost.to(x.dtype))
