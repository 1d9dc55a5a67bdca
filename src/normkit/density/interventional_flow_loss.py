"""The density of an outcome had everyone been treated: the loss of a flow, doubly robust."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import reals

LEAST = 1e-9  # added to propensities
CONSTANT = "propensities are constants for the gradient"


@method(
    "interventional-flow-loss",
    paper="Normalizing Flows for Interventional Density Estimation (Melnychuk et al., 2022), arXiv 2209.06203",
    evidence="equations",
    shape="N",
    inputs={"cross_entropy_x": "N", "cross_entropy": "", "treated": "N : bool", "propensity": "N : unit"},
    provenance="the paper's equations, and a test where one of the nuisances is wrong",
    exempt={
        "gradcheck": CONSTANT,
        "higher-derivatives": CONSTANT,
        "compile batches train": "torch starts the first trace over where a single float64 number comes in",
    },
)
class InterventionalFlowLoss(Loss):
    """Fit the density of an outcome under a treatment to what a first model says of it, and mend that by the data.

    For causal questions about whole distributions. A first flow tells the outcome's density p(y|x, a) of each unit and
    the chance pi of its treatment; with q the flow that is trained and CE_i = -integral p(y|x_i, a) log q(y) dy,

        loss = cross_entropy + mean(1(A_i = a) 1(pi_i >= clip) / (pi_i + 1e-9) (-log q(Y_i) - CE_i))

    which is right where either the density or the chance is.

    Args:
        clip: units whose chance of treatment is below are left out of the correction; not bounded, as elsewhere.

    ``loss(log_q_y, cross_entropy_x, cross_entropy, treated, propensity)``: of N units, log q(Y_i) and CE_i; the mean
    CE over units or a finer estimate, a single number; which units had the treatment; pi_i. The last carries no
    gradient. Average the weights of q over steps, as the authors do.

    Normalizing Flows for Interventional Density Estimation (Melnychuk et al., 2022), arXiv 2209.06203.
    """

    def __init__(self, *, clip: float = 0.05):
        super().__init__()
        self.clip = check.number(self, "clip", clip, 0.0, 1.0)

    def forward(
        self, log_q_y: Tensor, cross_entropy_x: Tensor, cross_entropy: Tensor, treated: Tensor, propensity: Tensor
    ) -> Tensor:
        """Return the loss, a single number."""
        own = reals(self, "log_q_y", log_q_y, (None,))
        conditional = reals(self, "cross_entropy_x", cross_entropy_x, log_q_y.shape, log_q_y)
        plain = reals(self, "cross_entropy", cross_entropy, (), log_q_y)
        check.flags(self, "treated", treated, log_q_y.shape, log_q_y)
        chance = reals(self, "propensity", propensity, log_q_y.shape, log_q_y).detach()
        counts = (treated != 0) & (chance >= self.clip)
        weight = counts.to(own.dtype) / (chance + LEAST)
        off = torch.where(counts, -own - conditional, 0)  # a unit left out may have a density of 0
        return (plain + (weight * off).mean()).to(log_q_y.dtype)
