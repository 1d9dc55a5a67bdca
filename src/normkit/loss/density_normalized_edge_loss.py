"""Density-normalized edge loss: edges of a graph weighted by how many of them mean something."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate

MODES = ("dnorm", "dnorm-fgbg", "baseline")


@method(
    "density-normalized-edge-loss",
    paper="Graph Density-Aware Losses for Novel Compositions in Scene Graph Generation (Knyazev et al., 2020), "
    "arXiv 2005.08230",
    shape="N C",
    over="N",
    inputs={"target": "N : index C"},
    exempt={"processes": "the edges of the whole batch are counted; join them before the call"},
)
class DensityNormalizedEdgeLoss(Loss):
    """Divide the loss of a graph's edges by the number of edges that are labeled, not by the number of all.

    For scene graphs, where nearly all pairs of objects are background: a mean over all edges lets the labeled ones
    fade as graphs grow. With F and B edges of foreground and background (class 0), l the cross-entropy of an edge,

        dnorm       gamma (alpha / F sum_fg l + beta / F sum_bg l)
        dnorm-fgbg  gamma (alpha / F sum_fg l + beta / B sum_bg l)
        baseline    gamma / (F + B) sum l

    Without foreground dnorm leaves each edge of the background at weight 1; no edges at all give 0.

    Args:
        mode: which of the three.
        alpha, beta: weights of foreground and background; the baseline has none.
        gamma: the weight of the whole.

    ``loss(logits, target)``: (M, R) of all edges of a batch, classes int64 (M,).

    Graph Density-Aware Losses (Knyazev et al., 2020), arXiv 2005.08230.
    """

    def __init__(self, mode: str = "dnorm", alpha: float = 1.0, beta: float = 1.0, gamma: float = 1.0):
        super().__init__()
        self.mode = check.choice(self, "mode", mode, MODES)
        self.alpha, self.beta = check.number(self, "alpha", alpha), check.number(self, "beta", beta)
        self.gamma = check.number(self, "gamma", gamma)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "logits", logits, (None, None), logits)
        check.index(self, "target", target, logits.shape[:1], logits.shape[1], logits)
        losses = F.cross_entropy(accurate(logits), target, reduction="none")
        labeled = (target > 0).to(losses.dtype)
        foreground, background = labeled.sum(), (1 - labeled).sum()
        return (self.gamma * (self._weights(labeled, foreground, background) * losses).sum()).to(logits.dtype)

    def _weights(self, labeled: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
        if self.mode == "baseline":
            return torch.ones_like(labeled) / (foreground + background).clamp(min=1)
        of_foreground = self.alpha / foreground.clamp(min=1)
        if self.mode == "dnorm-fgbg":
            of_background = self.beta / background.clamp(min=1)
        else:
            of_background = torch.where(foreground > 0, self.beta / foreground.clamp(min=1), 1)
        return torch.where(labeled > 0, of_foreground, of_background)
