"""TLEG-layernorm: a layer norm of one layer, interpolated from two that all layers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.depth import along, share_of
from normkit.norm import Norm


@method(
    "tleg-layernorm",
    paper="Transformer as Linear Expansion of Learngene (Xia et al., 2024), arXiv 2312.05614",
    shape="... C",
    over="C",
    example={"layer": 1, "depth": 4},
    invariant=("shift", "scale"),
)
class TLEGLayerNorm(Norm):
    """Give each vector zero mean and unit variance; gain and shift move on a straight line as the layer goes deeper.

    For initializing transformers of any depth, together with ``tleg-linear``. With s = layer / depth, in [0, 1), mu
    the mean and v the biased variance over the last axis,

        y = (x - mu) / sqrt(v + eps) * (weight_base + s weight_layer) + bias_base + s bias_layer

    Args:
        dim: size of the last axis.
        layer: counts from 0, so that the first layer is the base.
        depth: how many layers there are.
        eps: added to the variance under the root; 0 is honoured.

    State, each (dim,): ``weight_base``, ones; ``weight_layer``, ``bias_base``, ``bias_layer``, zeros.

    Transformer as Linear Expansion of Learngene (Xia et al., 2024), arXiv 2312.05614.

    Differs from the paper in: layers count from 0 as in the authors' code, where the paper has l / L with l from 1.
    """

    def __init__(self, dim: int, *, layer: int, depth: int, eps: float = 1e-5):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.share = share_of(self, layer, depth)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.weight_base = nn.Parameter(torch.ones(dim))
        self.weight_layer = nn.Parameter(torch.zeros(dim))
        self.bias_base = nn.Parameter(torch.zeros(dim))
        self.bias_layer = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (..., dim)."""
        check.features_last(self, x, self.dim)
        weight = along(self.weight_base, self.weight_layer, self.share)
        return ops.row_norm(x, weight, along(self.bias_base, self.bias_layer, self.share), self.rule)

    @torch.no_grad()
    def expand(self, layer: int, depth: int) -> nn.LayerNorm:
        """Return the plain layer norm that layer ``layer`` of a network of ``depth`` layers starts from."""
        share = share_of(self, layer, depth)
        base = self.weight_base
        plain = nn.LayerNorm(self.dim, eps=self.rule.eps, device=base.device, dtype=base.dtype)
        plain.weight.copy_(along(base, self.weight_layer, share))
        plain.bias.copy_(along(self.bias_base, self.bias_layer, share))
        return plain
