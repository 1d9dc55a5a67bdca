"""Cosine normalization: a linear layer of directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "cosine-norm",
    paper="Cosine Normalization: Using Cosine Similarity Instead of Dot Product in Neural Networks (Luo et al., 2017), "
    "arXiv 1702.05870",
    evidence="equations",
    shape="... C",
    over="C",
    example={"out_features": 5},
    aliases=("cosine-linear",),
    invariant=("scale",),
    exempt={"units": "eps is the least length of a weight as well, whose unit is another"},
    provenance="equations in float64 in tests/activation/test_token_neighbours.py",
)
class CosineNorm(Method):
    """Take the cosine between the input and each row of the weight, in the place of their product.

    Where dot products without a bound make fully connected layers sensitive to the length of their inputs. As a
    classifier it needs a ``scale`` above 1, or the softmax behind it stays flat. Where only the weights' length is to
    be apart, take ``weight-norm``.

    A linear layer whose results lie in [-1, 1], whatever the length of input and weights:

        y_i = scale * (weight_i . x) / (max(||weight_i||, eps) max(||x||, eps))

    Args:
        in_features: features of the input.
        out_features: features of the result.
        center: subtract the mean of x and of each row first, so that y is Pearson's correlation.
        scale: multiplies the cosines.
        eps: the least length that is divided by.

    Input ``(..., in_features)``.

    Cosine Normalization: Using Cosine Similarity Instead of Dot Product in Neural Networks (Luo, Zhan, Wang, Yang,
    2017), arXiv 1702.05870.
    """

    def __init__(
        self, in_features: int, out_features: int, *, center: bool = False, scale: float = 1.0, eps: float = 1e-12
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.out_features = check.size(self, "out_features", out_features)
        self.center = bool(center)
        self.scale, self.eps = check.number(self, "scale", scale), check.eps(self, eps)
        self.weight = nn.Parameter(nn.init.kaiming_uniform_(torch.empty(out_features, in_features), a=math.sqrt(5)))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x``."""
        check.features_last(self, x, self.in_features)
        exact = accurate(x)
        return (self.scale * F.linear(self._unit(exact), self._unit(self.weight.to(exact.dtype)))).to(x.dtype)

    def _unit(self, v: Tensor) -> Tensor:
        v = v - v.mean(-1, keepdim=True) if self.center else v
        return F.normalize(v, dim=-1, eps=self.eps)
