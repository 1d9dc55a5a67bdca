"""Factorized LayerNorm: its projection and its scaling apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "factorized-layernorm",
    paper="On the Expressivity Role of LayerNorm in Transformers' Attention "
    "(Brody, Alon, Yahav, 2023), arXiv 2305.02582",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    invariant=("shift", "scale"),
)
class FactorizedLayerNorm(Norm):
    """Move each vector onto the hyperplane across (1, ..., 1), then give it the length sqrt(dim); either can be off.

    For asking what LayerNorm does for attention: the projection lets a query spread its attention evenly, the scaling
    lets every key be selected. Both together are LayerNorm with eps = 0, the scaling alone RMSNorm with eps = 0. Over
    the last axis,

        p = x - mean(x)                             with ``project``
        y = sqrt(dim) p / max(||p||, 1e-12)         with ``scale``
        y * weight + bias                           with ``affine``

    Args:
        dim: size of the last axis.
        scale: fix the length.
        project: remove the mean.
        affine: learn a gain and a shift.

    On the Expressivity Role of LayerNorm in Transformers' Attention (Brody, Alon, Yahav, 2023), arXiv 2305.02582.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, dim: int, *, scale: bool = True, project: bool = True, affine: bool = True):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.scale, self.project = bool(scale), bool(project)
        self.rule = ops.Row(center=self.project, eps=1e-12, eps_place="floor", scale=math.sqrt(dim))
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (..., dim)."""
        check.features_last(self, x, self.dim)
        if self.scale:
            gain = None if self.weight is None else self.weight * math.sqrt(self.dim)
            return ops.row_norm(x, gain, self.bias, self.rule)
        y = accurate(x)
        y = y - y.mean(-1, keepdim=True) if self.project else y
        y = y if self.weight is None else y * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)
