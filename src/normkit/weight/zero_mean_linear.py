"""Zero-mean linear: what makes a LayerNorm after it an RMSNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "zero-mean-linear",
    paper="Pre-RMSNorm and Pre-CRMSNorm Transformers (Jiang, Gu, Zhu, Pan, 2023), arXiv 2305.14858",
    shape="... C",
    over="",
    example={"out_features": 6},
)
class ZeroMeanLinear(Method):
    """Center a linear layer's weight and bias over the outputs, so that every output vector has mean zero.

    For the writers to the residual stream of a Pre-LN transformer (the output projections of attention and MLP, the
    embeddings): with all of them centered the stream has mean zero, and each LayerNorm on it equals an RMSNorm with the
    same eps. With mean over the output axis, column by column,

        y = x (W - mean(W))ᵀ + b - mean(b)

    Gradients reach W and b through the centering, so that training is that of the Pre-LN transformer too.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        bias: learn a bias.

    Input ``(..., in_features)``, output ``(..., out_features)``. Parameters start as in torch.nn.Linear.

    Pre-RMSNorm and Pre-CRMSNorm Transformers (Jiang, Gu, Zhu, Pan, 2023), arXiv 2305.14858.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.out_features = check.size(self, "out_features", out_features)
        start = nn.Linear(in_features, out_features, bias=bias)
        self.weight, self.bias = start.weight, start.bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the centered layer."""
        check.features_last(self, x, self.in_features)
        bias = None if self.bias is None else _center(self.bias).to(x.dtype)
        return functional.linear(x, _center(self.weight).to(x.dtype), bias).to(x.dtype)


def _center(weight: Tensor) -> Tensor:
    """Subtract the mean over the output axis, the first."""
    weight = accurate(weight)
    return weight - torch.mean(weight, 0)
