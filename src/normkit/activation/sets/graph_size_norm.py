"""Graph size normalization."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.activation.sets._graphs import PerGraph, rows_by
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "graph-size-norm",
    paper="Benchmarking Graph Neural Networks (Dwivedi et al., 2020), arXiv 2003.00982",
    evidence="equations",
    shape="N C",
    inputs={"batch?": "N : index 3"},
    provenance="torch_geometric's equations in float64 in tests/activation/test_graphs.py",
    exempt={"batches rows": "it divides by the size of the graph, which is of other rows"},
)
class GraphSizeNorm(PerGraph):
    """Divide each node by the root of its graph's number of nodes.

    For batches of graphs of many sizes, before a batch norm: a graph weighs as much as its nodes together, whatever
    their number.

    With n the number of nodes of a node's graph, y = x / sqrt(n).

    Inputs ``x`` (nodes, C) and ``batch`` (nodes,) int64, the graph of each node; all one graph without it. Nothing is
    learned, and there are no arguments.

    Benchmarking Graph Neural Networks (Dwivedi et al., 2020), arXiv 2003.00982.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Divide ``x`` graph by graph."""
        index, count = self._members(x, batch)
        return (accurate(x) * torch.rsqrt(rows_by(x, index, count))[index]).to(x.dtype)
