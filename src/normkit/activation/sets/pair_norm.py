"""PairNorm: the total distance of a graph's nodes, held constant."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.sets._graphs import PerGraph, inverse_root, mean_by
from normkit.catalog import method
from normkit.statistics import accurate

MODES = ("together", "each", "each-then-center")


@method(
    "pair-norm",
    paper="PairNorm: Tackling Oversmoothing in GNNs (Zhao, Akoglu, 2019), arXiv 1909.12223",
    evidence="equations",
    shape="N C",
    over="N/graph",
    inputs={"batch?": "N : index 3"},
    aliases={"pairnorm-si": {"mode": "each"}, "pairnorm-scs": {"mode": "each-then-center"}},
    invariant=("shift", "scale"),
    provenance="the authors' and torch_geometric's equations in float64 in tests/activation/test_graphs.py",
)
class PairNorm(PerGraph):
    """Center a graph's nodes, and give them a fixed mean square length.

    For deep graph networks, whose nodes would come to be all alike: the sum of their squared distances stays what it
    is. In shallow networks what nodes have in common may tell something: take ``graph-norm``.

    Per graph, with the mean over its nodes,

        v = x - mean(x)
        together           y = scale * v / sqrt(mean(||v||²) + eps)        PN
        each               y = scale * v / sqrt(||v||² + eps)              PN-SI, every node of one length
        each-then-center   y = scale * x / sqrt(||x||² + eps) - mean(x)    PN-SCS

    Args:
        scale: length of the result.
        mode: ``"together"``, ``"each"`` or ``"each-then-center"``.
        eps: under the root.

    Inputs ``x`` (nodes, C) and ``batch`` (nodes,) int64, the graph of each node; all one graph without it. Nothing is
    learned.

    PairNorm: Tackling Oversmoothing in GNNs (Zhao, Akoglu, 2019), arXiv 1909.12223.

    Differs from the authors' code in: eps is 1e-5, as in torch_geometric, not 1e-6.
    """

    def __init__(self, *, scale: float = 1.0, mode: str = "together", eps: float = 1e-5):
        super().__init__()
        self.scale = check.number(self, "scale", scale)
        self.mode = check.choice(self, "mode", mode, MODES)
        self.eps = check.eps(self, eps)

    def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalize ``x`` graph by graph."""
        index, count = self._members(x, batch)
        exact = accurate(x)
        mean = mean_by(exact, index, count)[index]
        v = exact if self.mode == "each-then-center" else exact - mean
        square = v.square().sum(-1, keepdim=True)
        if self.mode == "together":
            square = mean_by(square, index, count)[index]
        y = self.scale * v * inverse_root(square + self.eps)
        return (y - mean if self.mode == "each-then-center" else y).to(x.dtype)
