"""The regularizer of learned rounding: each weight is to decide."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.quant._rounding import PAPER, PROVENANCE, share
from normkit.statistics import accurate


@method("rounding-regularizer", paper=PAPER, evidence="library", shape="... C", over="... C", provenance=PROVENANCE)
class RoundingRegularizer(Loss):
    """Penalize weights that are neither rounded down nor up.

    For ``learned-rounding``. With h how far a weight goes up,

        weight sum(1 - |2 h - 1|^beta)

    It is a sum: its strength grows with the layer.

    Args:
        beta: how flat the middle is; :meth:`anneal` lets it fall over a run.
        weight: of the term.

    ``loss(alpha)``: of any shape.

    Gradient-Based Post-Training Quantization: Challenging the Status Quo (Yvinec, Dapogny, Bailly, 2023), arXiv
    2308.07662.
    """

    def __init__(self, *, beta: float = 10.0, weight: float = 0.001):
        super().__init__()
        self.beta = check.number(self, "beta", beta, 1.0)
        self.weight = check.number(self, "weight", weight)

    def forward(self, alpha: Tensor) -> Tensor:
        """Return the penalty, a single number."""
        check.floating(self, alpha, "alpha")
        undecided = 1 - (2 * share(accurate(alpha)) - 1).abs() ** self.beta
        return (self.weight * undecided.sum()).to(alpha.dtype)

    def anneal(self, progress: float, start: float = 20.0, end: float = 2.0) -> None:
        """Set beta for a share of the run that is done, from ``start`` to ``end`` in a line."""
        done = check.number(self, "progress", progress, 0.0, 1.0)
        for name, value in (("start", start), ("end", end)):
            check.number(self, name, value, 1.0, check.LARGEST)
        self.beta = float(start + (end - start) * done)
