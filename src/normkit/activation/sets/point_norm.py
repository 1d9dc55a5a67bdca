"""PointNorm: the neighbours of sampled points, seen from these points."""

from __future__ import annotations

from torch import Tensor

from normkit.activation.sets._points import PAPER, PointwiseNorm
from normkit.catalog import method


@method(
    "point-norm",
    paper=PAPER,
    shape="N S K C",
    over="S K C",
    inputs={"anchors": "N S C"},
)
class PointNorm(PointwiseNorm):
    """Center each point's neighbours on the point and divide them by the sample's standard deviation.

    For point clouds, whose neighbourhoods differ in density: it evens out what a grouping of K nearest neighbours
    gives, before a small network reads it. With d = grouped - mu,

        y = weight * d / (sigma + eps) + bias

    mu is the sampled point itself, per (n, s, c), or with ``mean="global"`` one number a sample, the mean of
    ``anchors`` over S and C. sigma is one number a sample, the unbiased deviation of d over S, K and C. With
    ``std="local"`` it is that over the K neighbours, per (n, s, c), about their own mean.

    Args:
        num_features: C, the size of the last axis.
        mean: ``"local"`` or ``"global"``: what d is centered on.
        std: ``"global"`` or ``"local"``: what d is divided by.
        eps: added to sigma, outside any root; 0 is honoured.

    Inputs ``grouped`` (N, S, K, C), the K neighbours of S points, and ``anchors`` (N, S, C), these points; the result
    has the shape of ``grouped``. A deviation needs two values: K of 1 is refused with ``std="local"``.

    PointNorm: Dual Normalization is All You Need for Point Cloud Analysis (Zheng et al., 2022), arXiv 2207.06324.
    """

    def forward(self, grouped: Tensor, anchors: Tensor) -> Tensor:
        """Normalize the neighbours."""
        self._check(grouped, anchors)
        return (self.weight * self._center_grouped(grouped, anchors) + self.bias).to(grouped.dtype)
