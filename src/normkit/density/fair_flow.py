"""Fair flows: two groups made alike, each by a flow of its own, with a bound on what can be told of the group."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._flows import back, flow_of, width
from normkit.density._inputs import gaussian
from normkit.kinds import Loss
from normkit.statistics import reals

LogDensity = Callable[[Tensor], Tensor]


class FairParts(NamedTuple):
    """The loss, and the divergence of the groups in it."""

    loss: Tensor
    kl: Tensor


@method(
    "fair-flow",
    paper="Fair Normalizing Flows (Balunović et al., 2021), arXiv 2106.05937",
    evidence="equations",
    shape="N C",
    inputs={"log_q0_x0": "N", "x1": "N C", "log_q1_x1": "N", "prediction": ""},
    example={"flow0": lambda features: features, "flow1": lambda features: features},
    provenance="the paper's equations, and a test that integrates the densities",
    exempt={"compile batches train": "torch starts the first trace over where a single float64 number comes in"},
)
class FairFlow(Loss):
    """Encode each of two groups by a flow so that the codes have one law, and nobody can tell the groups apart.

    For representations that are fair to any user, with a proof: the laws of the codes are known exactly, as far as
    those of the data are. With p_a(z) = q_a(x) / |det df_a/dx| at x = f_a^-1(z), and z_a = f_a(x_a),

        kl = (mean(log p_0(z_0) - log p_1(z_0)) + mean(log p_1(z_1) - log p_0(z_1))) / 2
        loss = gamma kl + (1 - gamma) prediction

    Args:
        flow0, flow1: the flows of the groups, from data to codes, with ``inverse``; or a dimension, which is an affine
            map.
        density0, density1: log densities of the data of each group, callables (N, D) -> (N,), which the gradient
            passes; None: standard normal. The bound is as good as these.
        gamma: share of the divergence, in [0, 1].

    ``loss(x0, log_q0_x0, x1, log_q1_x1, prediction)``: samples (N, D) of each group, their log densities (N,), and what
    a classifier on the codes has lost, a single number. Returns ``loss`` and ``kl``. :meth:`bound` is what any
    adversary's balanced accuracy stays below.

    Fair Normalizing Flows (Balunović et al., 2021), arXiv 2106.05937.
    """

    def __init__(
        self,
        *,
        flow0: int | nn.Module,
        flow1: int | nn.Module,
        density0: LogDensity | None = None,
        density1: LogDensity | None = None,
        gamma: float = 0.5,
    ):
        super().__init__()
        self.flow0, self.flow1 = flow_of(self, "flow0", flow0), flow_of(self, "flow1", flow1)
        self.density0, self.density1 = density0, density1
        self.gamma = check.number(self, "gamma", gamma, 0.0, 1.0)

    def forward(self, x0: Tensor, log_q0_x0: Tensor, x1: Tensor, log_q1_x1: Tensor, prediction: Tensor) -> FairParts:  # type: ignore[override]
        """Return the loss and the divergence."""
        first, second = reals(self, "x0", x0, (None, width(self.flow0))), reals(self, "x1", x1, (None, x0.shape[1]), x0)
        own0 = reals(self, "log_q0_x0", log_q0_x0, x0.shape[:1], x0)
        own1 = reals(self, "log_q1_x1", log_q1_x1, x1.shape[:1], x0)
        (z0, det0), (z1, det1) = self.flow0(first), self.flow1(second)
        forth = (own0 - det0 - self.log_prob(1, z0)).mean()
        back_again = (own1 - det1 - self.log_prob(0, z1)).mean()
        kl = (forth + back_again) / 2
        task_loss = reals(self, "prediction", prediction, (), x0)
        return FairParts(*(value.to(x0.dtype) for value in (self.gamma * kl + (1 - self.gamma) * task_loss, kl)))

    def log_prob(self, group: int, z: Tensor) -> Tensor:
        """Return the log density of codes (N, D) in group 0 or 1."""
        flow, density = ((self.flow0, self.density0), (self.flow1, self.density1))[group]
        x, log_det = back(flow, z)
        return (gaussian(x, 0.0, 1.0) if density is None else density(x)) + log_det

    @torch.no_grad()
    def bound(self, x0: Tensor, x1: Tensor, failing: float = 0.05) -> float:
        """Return what the balanced accuracy of every adversary stays below, with probability 1 - ``failing``.

        By the total variation of the laws of the codes of samples (N, D), and Hoeffding's bound on its estimate. It
        holds of the densities that the groups were said to have.
        """
        check.number(self, "failing", failing, 0.0, 1.0, open_low=True)
        apart = []
        for group, (flow, x) in enumerate(((self.flow0, x0), (self.flow1, x1))):
            z = flow(reals(self, f"x{group}", x, (None, None)))[0]
            apart.append((1 - (self.log_prob(1 - group, z) - self.log_prob(group, z)).exp()).clamp(min=0).mean())
        room = math.sqrt(math.log(2 / failing) / 8 * (1 / len(x0) + 1 / len(x1)))
        return min(1.0, (1 + (sum(apart).item() / 2 + room)) / 2)  # type: ignore[union-attr]
