"""Mean subtraction."""

from __future__ import annotations

from torch import Tensor

from normkit.activation.sets._graphs import PerGraph, mean_by
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "mean-subtraction-norm",
    paper="Revisiting 'Over-smoothing' in Deep GCNs (Yang et al., 2020), arXiv 2003.13663",
    evidence="equations",
    shape="N C",
    over="N/graph",
    inputs={"batch?": "N : index 3"},
    invariant=("shift",),
    provenance="torch_geometric's equations in float64 in tests/activation/test_graphs.py",
)
class MeanSubtractionNorm(PerGraph):
    """Subtract the mean of a graph's nodes from each of them.

    For deep graph networks: what makes all nodes alike is the part that they share, and it goes. It centers only;
    ``pair-norm`` also fixes the nodes' mean square length.

    Per graph and feature, y = x - mean(x) over the graph's nodes.

    Inputs ``x`` (nodes, C) and ``batch`` (nodes,) int64, the graph of each node; all one graph without it. Nothing is
    learned, and there are no arguments.

    Revisiting 'Over-smoothing' in Deep GCNs (Yang et al., 2020), arXiv 2003.13663.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Center ``x`` graph by graph."""
        index, count = self._members(x, batch)
        exact = accurate(x)
        return (exact - mean_by(exact, index, count)[index]).to(x.dtype)
