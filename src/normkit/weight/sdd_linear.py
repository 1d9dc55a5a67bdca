"""SDD-linear: a linear map whose result gets a fixed size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear


@method(
    "sdd-linear",
    paper="Scale-Distribution Decoupling: Enabling Stable and Effective Training of Large Language Models (Wang et "
    "al., 2025), arXiv 2502.15499",
    shape="... C",
    over="out_features",
    example={"out_features": 6},
    exempt={"extremes huge float16": "the matrix product of 6e4 overflows before it is normalized"},
)
class SDDLinear(Method):
    """Map linearly, then divide the result by its root mean square: the weight only turns, a gain says how large.

    For all linear maps of a transformer but embeddings and head, so that even post-norm trains: the result does not
    depend on the weight's scale, so the gradient is orthogonal to the weight, and weight decay acts on the step size.
    With z over the out_features of one position,

        z = x Wᵀ [+ bias],    y = scale * z / sqrt(mean(z²) + eps)

    Args:
        in_features, out_features: sizes of the last axis of x and y.
        bias: learn a shift of z, inside the norm.
        eps: keeps the root away from 0; 0 is honoured.

    State: ``weight`` (out, in) and ``bias`` (out,) as in ``nn.Linear``; ``scale`` (out,), ones.

    Scale-Distribution Decoupling: Enabling Stable and Effective Training of Large Language Models (Wang et al., 2025),
    arXiv 2502.15499.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False, eps: float = 1e-6):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.rule = ops.Row(eps=check.eps(self, eps))
        plain = Linear(self.in_features, check.size(self, "out_features", out_features), bias=bias)
        self.weight, self.bias = plain.weight, plain.bias
        self.scale = nn.Parameter(torch.ones(out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis of ``x``, in_features wide."""
        check.features_last(self, x, self.in_features)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        z = nn.functional.linear(x, self.weight.to(x.dtype), bias)
        return ops.row_norm(z.to(x.dtype), self.scale, rule=self.rule)
