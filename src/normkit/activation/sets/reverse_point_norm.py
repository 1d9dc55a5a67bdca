"""Reverse PointNorm: sampled points, seen from their neighbours."""

from __future__ import annotations

from torch import Tensor

from normkit.activation.sets._points import PAPER, PointwiseNorm
from normkit.catalog import method


@method(
    "reverse-point-norm",
    paper=PAPER,
    shape="N S K C",
    over="S K C",
    inputs={"anchors": "N S C"},
)
class ReversePointNorm(PointwiseNorm):
    """Center each point on its neighbours' mean and divide it by the sample's standard deviation.

    For point clouds: the counterpart of PointNorm, which it follows in DualNorm. For both halves together take
    ``dualnorm``.

    With d = anchors - mu,

        y = weight * d / (sigma + eps) + bias

    mu is the mean of the K neighbours, per (n, s, c), or with ``mean="global"`` one number a sample, the mean of
    ``grouped`` over S, K and C. sigma is one number a sample, the unbiased deviation of d over S and C, or with
    ``std="local"`` sqrt(abs(d) + 1e-5), element by element: a single value has no deviation, and the result is the
    square root of d, with d's sign.

    Args:
        num_features: C, the size of the last axis.
        mean: ``"local"`` or ``"global"``: what d is centered on.
        std: ``"global"`` or ``"local"``: what d is divided by.
        eps: added to sigma, outside any root; 0 is honoured. The 1e-5 under the root is fixed.

    Inputs ``grouped`` (N, S, K, C), the K neighbours of S points, and ``anchors`` (N, S, C), these points; the result
    has the shape of ``anchors``. A deviation needs two values: S and C both 1 is refused with ``std="global"``.

    PointNorm: Dual Normalization is All You Need for Point Cloud Analysis (Zheng et al., 2022), arXiv 2207.06324.
    """

    def forward(self, grouped: Tensor, anchors: Tensor) -> Tensor:
        """Normalize the sampled points."""
        self._check(grouped, anchors)
        return (self.weight * self._center_anchors(grouped, anchors) + self.bias).to(anchors.dtype)
