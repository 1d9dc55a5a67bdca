"""Scalable neural network kernels: a ReLU layer whose input and weight meet in random features."""

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
    "snnk-relu",
    paper="Scalable Neural Network Kernels (Sehanobish et al., 2024), arXiv 2310.13225",
    shape="... C",
    over="",
    example={"out_features": 6, "num_features": 5},
    exempt={"moves projection": "the features stay what they are"},
)
class SNNKReLU(Method):
    """Replace a layer relu(W x) by a product of features of the input with trained ones.

    For fewer parameters, num_features < in_features, as in adapters; and two linear maps in a row may be multiplied
    out after training. With a fixed projection P of standard normal rows, m of them,

        y = f(x) weight^T,    f(z) = max(P z, floor) / sqrt(m)

    Args:
        in_features, out_features: sizes of the last axis of x and y.
        num_features: m.
        floor: the least of a feature before the root; below 0 lets some of the negative part through.
        normalize: divide z by its length first.
        radius: and multiply it by this; without ``normalize`` it has no effect.

    State: ``weight`` (out, m), which begins as the features of a linear layer's weight (:meth:`reset` takes those of
    another); the buffer ``projection`` (m, in), without which the trained weight means nothing.

    Scalable Neural Network Kernels (Sehanobish et al., 2024), arXiv 2310.13225.

    Differs from the authors' code in: ``projection`` is saved; ``normalize`` is along the last axis for any rank.
    """

    projection: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_features: int,
        *,
        floor: float = 0.0,
        normalize: bool = False,
        radius: float | None = None,
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        check.size(self, "out_features", out_features)
        check.size(self, "num_features", num_features)
        self.floor, self.normalize = check.number(self, "floor", floor), bool(normalize)
        self.radius = None if radius is None else check.number(self, "radius", radius, 0.0, open_low=True)
        self.register_buffer("projection", torch.randn(num_features, in_features))
        self.weight = nn.Parameter(torch.empty(out_features, num_features))
        self.reset(nn.Linear(in_features, out_features, bias=False).weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis of ``x``, in_features wide."""
        return F.linear(self.features(x), self.weight.to(x.dtype)).to(x.dtype)

    def features(self, raw: Tensor) -> Tensor:
        """Return the features (..., num_features) of ``raw`` (..., in_features)."""
        check.features_last(self, raw, self.in_features, "x")
        z = raw
        if self.normalize:
            z = (F.normalize(accurate(raw), dim=-1) * (1.0 if self.radius is None else self.radius)).to(raw.dtype)
        z = F.linear(z, self.projection.to(raw.dtype))
        return (z.clamp(min=self.floor) / math.sqrt(len(self.projection))).to(raw.dtype)

    @torch.no_grad()
    def reset(self, weight: Tensor) -> None:
        """Begin at the layer of an ordinary weight (out, in)."""
        check.values(self, "weight", weight, (len(self.weight), self.in_features), weight)
        self.weight.copy_(self.features(weight))
