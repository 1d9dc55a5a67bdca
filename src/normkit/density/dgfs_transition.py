"""The transition of a diffusion sampler: how likely a step is forward, and backward."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import gaussian
from normkit.statistics import reals

NAME = "dgfs-transition"


class Transition(NamedTuple):
    """Log densities of a step, forward and backward."""

    log_pf: Tensor
    log_pb: Tensor


@method(
    NAME,
    paper="Diffusion Generative Flow Samplers: Improving learning signals through partial trajectory optimization "
    "(Zhang et al., 2024), arXiv 2310.02679",
    shape="B C",
    inputs={"following": "B C", "drift": "B C", "t": "B : unit"},
)
def dgfs_transition(
    x: Tensor, following: Tensor, drift: Tensor, t: Tensor, *, sigma: float = 1.0, dt: float = 0.01
) -> Transition:
    """Return the log density of a step under the drift, and that of its way back under Brownian motion.

    For ``subtb-loss``, which sums these up along a trajectory, also one that another drift drew. For the weight of a
    fresh trajectory ``dgfs-step`` is enough.

    With t' = t + dt and N a Gaussian of one deviation for all coordinates,

        log_pf = log N(following; x + sigma dt drift, sigma sqrt(dt))
        log_pb = log N(x; (t / t') following, sigma sqrt(dt t / t')),    0 for the step from t = 0, which is a point

    Args:
        x, following: a state and the one after it, (B, D).
        drift: at x, (B, D).
        t: the time of x, (B,).
        sigma: the scale of the noise.
        dt: the length of a step.

    Returns ``log_pf`` and ``log_pb``, (B,), the latter without gradient.

    Diffusion Generative Flow Samplers (Zhang et al., 2024), arXiv 2310.02679.
    """
    check.number(NAME, "sigma", sigma, 0.0, open_low=True)
    check.number(NAME, "dt", dt, 0.0, open_low=True)
    here = reals(NAME, "x", x, (None, None))
    next_state = reals(NAME, "following", following, x.shape, x)
    log_pf = gaussian(next_state, here + sigma * dt * reals(NAME, "drift", drift, x.shape, x), sigma * dt**0.5)
    log_pb = _backward(here.detach(), next_state.detach(), reals(NAME, "t", t, (len(x),), x).detach(), sigma, dt)
    return Transition(log_pf.to(x.dtype), log_pb.to(x.dtype))


def _backward(x: Tensor, following: Tensor, t: Tensor, sigma: float, dt: float) -> Tensor:
    first = t + dt <= dt
    share = torch.where(first, 1.0, t / (t + dt))
    return torch.where(first, 0.0, gaussian(x, share.unsqueeze(1) * following, sigma * (dt * share).sqrt()))
