"""Batch normalization in the ball of Poincaré, by a mean in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.catalog import method
from normkit.manifold import _ball, _frechet, _poincare
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "poincare-midpoint-batchnorm",
    paper="Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027",
    shape="N C *",
    over="N *",
    exempt={"half": _poincare.FURTHER, "device float32": _poincare.FURTHER}
    | {f"offsets {far} {what}": _poincare.FURTHER for far in ("1e2", "1e4") for what in ("results", "gradients")},
)
class PoincareMidpointBatchNorm(Norm):
    """Give vectors of a batch, taken into the ball of Poincaré, a learned mean and variance.

    For hyperbolic networks: the midpoint is as good as the Fréchet mean, and needs no iteration. Inputs and outputs are
    tangent vectors at the origin. With x_i = exp_0(input_i), g_i = 1 / (1 - c |x_i|^2),

        m' = sum g_i x_i / (sum g_i - N / 2),    m = h / (1 + h) m',    h = 1 / sqrt(1 - c |m'|^2)
        v = mean distance(x_i, m)^2
        output_i = log_0(exp_o(sqrt(scale / (v + eps)) T log_m(x_i))),    o = exp_0(bias)

    T the transport from m to o. Statistics are those of the batch in evaluation as well.

    Args:
        num_features: C.
        curvature: c, minus the curvature.
        use_midpoint: False: take the Fréchet mean in place of m.
        eps: added to the variance.
        sync: take statistics over all processes; of the midpoint only.
        process_group: the processes to join, default all.

    Input (N, C, ...), each place a vector. State: ``bias`` (C,), zeros, and ``scale`` (1,), one, the variance wanted.

    Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027.

    Differs from the authors' code in: no running statistics, which theirs keeps and never reads.
    """

    def __init__(
        self,
        num_features: int,
        *,
        curvature: float = 1.0,
        use_midpoint: bool = True,
        eps: float = 1e-6,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.curvature = check.number(self, "curvature", curvature, 0.0, open_low=True)
        self.use_midpoint, self.eps = bool(use_midpoint), check.eps(self, eps)
        self.sync, self.process_group = bool(sync), process_group
        if sync and not use_midpoint:
            raise ValueError("PoincareMidpointBatchNorm: sync=True wants use_midpoint=True")
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` by the statistics of this batch."""
        check.channels_first(self, x, self.num_features)
        c, rows = self.curvature, accurate(x).movedim(1, -1)
        points = _ball.project(_ball.exp0(rows, c), c)
        mean = self._center(points.reshape(-1, self.num_features))
        var = self._mean(_ball.distance(mean, points, c).square().reshape(-1))
        goal = _ball.project(_ball.exp0(accurate(self.bias), c), c)
        # from the mean to each point, transported to the goal: the conformal factors of both cancel
        tangent = _ball.gyration(goal, -mean, _ball.log0(_ball.add(-mean, points, c), c), c)
        tangent = tangent * _root(accurate(self.scale) / (var + self.eps))
        output = _ball.log0(_ball.project(_ball.add(goal, _ball.exp0(tangent, c), c), c), c)
        return output.movedim(-1, 1).to(x.dtype)

    def _mean(self, values: Tensor) -> Tensor:
        return statistics.mean_over(values, (0,), sync=self.sync, group=self.process_group)

    def _center(self, points: Tensor) -> Tensor:
        if not self.use_midpoint and points.shape[0]:
            return _frechet.mean(points, self.curvature)
        weight = 1 / (1 - self.curvature * points.square().sum(-1, keepdim=True))
        middle = self._mean(weight * points) / (self._mean(weight) - 0.5)
        stretch = (1 - self.curvature * middle.square().sum(-1, keepdim=True)).rsqrt()
        return stretch / (1 + stretch) * middle


def _root(x: Tensor) -> Tensor:
    """A root that is finite where a variance of 0 is not stabilized."""
    return x.clamp(max=torch.finfo(x.dtype).max).sqrt()
