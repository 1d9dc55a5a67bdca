"""TLEG-linear: a linear map of one layer, interpolated from two that all layers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.depth import along, share_of
from normkit.kinds import Method


@method(
    "tleg-linear",
    paper="Transformer as Linear Expansion of Learngene (Xia et al., 2024), arXiv 2312.05614",
    shape="... C",
    over="",
    example={"out_features": 6, "layer": 1, "depth": 4},
)
class TLEGLinear(Method):
    """Map linearly with weights that move on a straight line as the layer goes deeper.

    For initializing transformers of any depth: one base and one slope, shared by all layers, are trained once, and then
    expanded to as many layers as wanted (:meth:`expand`). With s = layer / depth, in [0, 1),

        y = x (weight_base + s weight_layer)ᵀ + bias_base + s bias_layer

    Args:
        in_features, out_features: sizes of the last axis of x and y.
        layer: counts from 0, so that the first layer is the base.
        depth: how many layers there are.
        bias: learn a shift.

    State: ``weight_base``, ``weight_layer`` (out, in), truncated normal with deviation 0.02; ``bias_base``,
    ``bias_layer`` (out,), zeros. Layers share them by assignment: ``second.weight_base = first.weight_base``.

    Transformer as Linear Expansion of Learngene (Xia et al., 2024), arXiv 2312.05614.

    Differs from the paper in: layers count from 0 as in the authors' code, where the paper has l / L with l from 1.
    """

    weight_base: nn.Parameter
    weight_layer: nn.Parameter
    bias_base: nn.Parameter | None
    bias_layer: nn.Parameter | None

    def __init__(self, in_features: int, out_features: int, *, layer: int, depth: int, bias: bool = True):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        out_features = check.size(self, "out_features", out_features)
        self.share = share_of(self, layer, depth)
        for name in ("weight_base", "weight_layer"):
            weight = nn.init.trunc_normal_(torch.empty(out_features, in_features), std=0.02)
            self.register_parameter(name, nn.Parameter(weight))
        for name in ("bias_base", "bias_layer"):
            self.register_parameter(name, nn.Parameter(torch.zeros(out_features)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis of ``x``, in_features wide."""
        check.features_last(self, x, self.in_features)
        weight = along(self.weight_base, self.weight_layer, self.share).to(x.dtype)
        bias = self._bias(self.share)
        return nn.functional.linear(x, weight, None if bias is None else bias.to(x.dtype)).to(x.dtype)

    def _bias(self, share: float) -> Tensor | None:
        if self.bias_base is None or self.bias_layer is None:
            return None
        return along(self.bias_base, self.bias_layer, share)

    @torch.no_grad()
    def expand(self, layer: int, depth: int) -> nn.Linear:
        """Return the plain linear map that layer ``layer`` of a network of ``depth`` layers starts from."""
        share = share_of(self, layer, depth)
        weight, bias = along(self.weight_base, self.weight_layer, share), self._bias(share)
        plain = nn.Linear(
            self.in_features, weight.shape[0], bias=bias is not None, device=weight.device, dtype=weight.dtype
        )
        plain.weight.copy_(weight)
        if bias is not None:
            plain.bias.copy_(bias)
        return plain
