"""The part of a state's flow that is known beforehand: reward and reference law, mixed by time."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import gaussian
from normkit.statistics import reals

NAME = "dgfs-log-reward"


@method(
    NAME,
    paper="Diffusion Generative Flow Samplers: Improving learning signals through partial trajectory optimization "
    "(Zhang et al., 2024), arXiv 2310.02679",
    shape="B C",
    inputs={"log_reward": "B", "t": " : unit"},
)
def dgfs_log_reward(x: Tensor, log_reward: Tensor, t: Tensor, *, sigma: float = 1.0, t_end: float = 1.0) -> Tensor:
    """Go from the log density of the reference law to the log reward as time goes on.

    For ``subtb-loss``, where a network learns the flow of intermediate states: added to this, they have a signal from
    the first step. Where whole trajectories alone are balanced, it is not needed.

    With c = max(sqrt(t_end) / 10, sqrt(t)),

        log_flow = (t / t_end) log_reward + (1 - t / t_end) log N(x; 0, c sigma)

    Args:
        x: the states, (B, D).
        log_reward: at x, (B,).
        t: their time, a single number as a tensor.
        sigma: the scale of the noise.
        t_end: the time at which the reward is all.

    Diffusion Generative Flow Samplers (Zhang et al., 2024), arXiv 2310.02679.
    """
    check.number(NAME, "sigma", sigma, 0.0, open_low=True)
    check.number(NAME, "t_end", t_end, 0.0, open_low=True)
    state = reals(NAME, "x", x, (None, None))
    reward, now = reals(NAME, "log_reward", log_reward, (len(x),), x), reals(NAME, "t", t, (), x)
    share = now / t_end
    reference = gaussian(state, 0.0, sigma * now.clamp(min=0.01 * t_end).sqrt())
    return (share * reward + (1 - share) * reference).to(x.dtype)
