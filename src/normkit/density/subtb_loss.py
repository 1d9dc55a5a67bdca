"""Sub-trajectory balance: every piece of a trajectory must balance."""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NAME = "subtb-loss"


@method(
    NAME,
    paper="Diffusion Generative Flow Samplers: Improving learning signals through partial trajectory optimization "
    "(Zhang et al., 2024), arXiv 2310.02679",
    shape="B T",
    inputs={"log_pb": "B T", "log_flow": "B 6"},
    invariant=("shift of log_flow",),
)
def subtb_loss(log_pf: Tensor, log_pb: Tensor, log_flow: Tensor, *, decay: float = 2.0, dim: int = 1) -> Tensor:
    """Weigh how far each piece of a trajectory is from balance, the long pieces most.

    For training a diffusion sampler of an energy, also on trajectories that were drawn before: pieces of a trajectory
    teach it before the end does. Where there are data instead of an energy, take ``conditional-flow-matching``.

    It trains the drift and the states' flow at once. With d = log_pf - log_pb, S its cumulative sum from 0, and i < j,

        A_ij = (log_flow_i - log_flow_j + S_j - S_i) / dim
        loss = sum_ij w_ij mean_B A_ij^2,    w_ij = decay^(j - i) / sum decay^(j - i)

    Args:
        log_pf, log_pb: of each step, forward and backward, (B, T).
        log_flow: of each state, (B, T + 1), the last the log reward exactly.
        decay: at 2 the whole trajectory and its neighbours dominate; below 1 single steps do.
        dim: the dimension of a state, which balances are divided by.

    Diffusion Generative Flow Samplers (Zhang et al., 2024), arXiv 2310.02679.
    """
    rate = math.log(check.number(NAME, "decay", decay, 0.0, sys.float_info.max, open_low=True))
    check.size(NAME, "dim", dim)
    forward = reals(NAME, "log_pf", log_pf, (None, None))
    rows, steps = log_pf.shape
    backward = reals(NAME, "log_pb", log_pb, log_pf.shape, log_pf)
    flow = reals(NAME, "log_flow", log_flow, (rows, steps + 1), log_pf)
    level = (flow - F.pad((forward - backward).cumsum(1), (1, 0))) / dim
    i, j = torch.triu_indices(steps + 1, steps + 1, 1, device=level.device)
    weight = torch.softmax(rate * (j - i).to(level.dtype), 0)
    return (weight * (level[:, i] - level[:, j]).square().mean(0)).sum().to(log_pf.dtype)
