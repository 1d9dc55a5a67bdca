"""GraphNorm: each graph's nodes, less a learned share of their mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.activation.sets._graphs import PerGraph, inverse_root, mean_by
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "graph-norm",
    paper="GraphNorm: A Principled Approach to Accelerating Graph Neural Network Training (Cai et al., 2020), "
    "arXiv 2009.03294",
    evidence="equations",
    shape="N C",
    over="N/graph",
    inputs={"batch?": "N : index 3"},
    replaces=("batchnorm",),
    aliases={"graph-instancenorm": {"affine": False, "shift": False}},
    invariant=("scale",),
    provenance="torch_geometric's equations in float64 in tests/activation/test_graphs.py",
)
class GraphNorm(PerGraph):
    """Subtract a learned share of the graph's mean from each node, and divide by what deviation is left.

    For graph networks, where the mean tells something of the graph's structure that should not be lost. Where deep
    networks make all nodes alike, take ``pair-norm``.

    Per graph and feature, with means over its nodes,

        v = x - mean_scale * mean(x),        y = weight * v / sqrt(mean(v²) + eps) + bias

    Args:
        num_features: C.
        eps: added to the mean square under the root.
        affine: learn ``weight`` and ``bias``.
        shift: learn ``mean_scale``, which starts at 1; off, all of the mean is subtracted: an instance norm of graphs.

    Inputs ``x`` (nodes, C) and ``batch`` (nodes,) int64, the graph of each node; all one graph without it.

    GraphNorm: A Principled Approach to Accelerating Graph Neural Network Training (Cai et al., 2020), arXiv
    2009.03294.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    mean_scale: nn.Parameter | None

    def __init__(self, num_features: int, *, eps: float = 1e-5, affine: bool = True, shift: bool = True):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        self.register_parameter("mean_scale", nn.Parameter(torch.ones(num_features)) if shift else None)

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalize ``x`` graph by graph."""
        check.features_last(self, x, self.num_features)
        index, count = self._members(x, batch)
        exact = accurate(x)
        mean = mean_by(exact, index, count)[index]
        v = exact - (mean if self.mean_scale is None else mean * self.mean_scale)
        y = v * inverse_root(mean_by(v.square(), index, count) + self.eps)[index]
        y = y if self.weight is None else y * self.weight
        y = y if self.bias is None else y + self.bias
        return y.to(x.dtype)
