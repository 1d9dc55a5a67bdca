"""DualNorm: neighbours from their points, then the points from their neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit.activation.sets._points import PAPER, PointwiseNorm
from normkit.catalog import method


@method(
    "dualnorm",
    paper=PAPER,
    shape="N S K C",
    over="S K C",
    inputs={"anchors": "N S C"},
)
class DualNorm(PointwiseNorm):
    """Normalize neighbours by their sampled points, then the sampled points by the normalized neighbours.

    For point clouds, in front of a small network that reads [grouped', anchors' repeated K times]; the concatenation is
    left to the caller. In two steps,

        grouped' = PointNorm(grouped, anchors)               with weight, bias
        anchors' = ReversePointNorm(grouped', anchors)       with reverse_weight, reverse_bias

    so that the second step sees the neighbours already normalized, gain and shift included, and the raw points.

    Args:
        num_features: C, the size of the last axis.
        mean: ``"local"`` or ``"global"``, in both steps.
        std: ``"global"`` or ``"local"``, in both steps.
        eps: added to both deviations, outside any root; 0 is honoured.

    Inputs ``grouped`` (N, S, K, C) and ``anchors`` (N, S, C); the result is the pair, in the same shapes.

    PointNorm: Dual Normalization is All You Need for Point Cloud Analysis (Zheng et al., 2022), arXiv 2207.06324.
    """

    def __init__(self, num_features: int, *, mean: str = "local", std: str = "global", eps: float = 1e-5):
        super().__init__(num_features, mean=mean, std=std, eps=eps)
        self.reverse_weight = nn.Parameter(torch.ones(num_features))
        self.reverse_bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, grouped: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Normalize both."""
        self._check(grouped, anchors)
        neighbours = self.weight * self._center_grouped(grouped, anchors) + self.bias
        points = self.reverse_weight * self._center_anchors(neighbours, anchors) + self.reverse_bias
        return neighbours.to(grouped.dtype), points.to(anchors.dtype)
