"""Layer normalization of whole graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.activation.sets._graphs import PerGraph, inverse_root, mean_by
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "graph-layernorm",
    paper="Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450, over whole graphs as in torch_geometric",
    evidence="equations",
    shape="N C",
    over="N/graph C",
    inputs={"batch?": "N : index 3"},
    replaces=("layernorm", "batchnorm"),
    invariant=("shift", "scale"),
    provenance="torch_geometric's equations in float64 in tests/activation/test_graphs.py",
)
class GraphLayerNorm(PerGraph):
    """Center all nodes of a graph on one number and divide them by one deviation.

    For graph networks: unlike a LayerNorm of each node it leaves the differences of length between nodes. With mean and
    biased variance over all nodes and features of a graph,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    Args:
        num_features: C.
        eps: added to the variance under the root.
        affine: learn ``weight`` and ``bias``.

    Inputs ``x`` (nodes, C) and ``batch`` (nodes,) int64, the graph of each node; all one graph without it.

    Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450, over whole graphs as in torch_geometric with
    ``mode="graph"`` (which without ``batch`` adds eps to the deviation instead).
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, num_features: int, *, eps: float = 1e-5, affine: bool = True):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalize ``x`` graph by graph."""
        check.features_last(self, x, self.num_features)
        index, count = self._members(x, batch)
        exact = accurate(x)
        v = exact - mean_by(exact.mean(1, keepdim=True), index, count)[index]
        var = mean_by(v.square().mean(1, keepdim=True), index, count)
        y = v * inverse_root(var + self.eps)[index]
        y = y if self.weight is None else y * self.weight
        y = y if self.bias is None else y + self.bias
        return y.to(x.dtype)
