"""Rank-regularized loss: a reranker's logits held near the scores of the source of its candidates."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, root

SHIFT = 1e-6  # added to each difference, as torch's pairwise distance has it


@method(
    "rank-regularized-loss",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275",
    shape="K",
    over="K",
    inputs={"labels": "K : mask", "scores": "K"},
    exempt={"processes": "one mention a call"},
)
class RankRegularizedLoss(Loss):
    """Cross-entropy of a mention's candidates, and the distance of their logits to the scores that they came with.

    For a reranker that learns from few mentions: where these say nothing it keeps the order that it was given. With y
    the labels, smoothed,

        loss = - sum_k y_k log softmax(logits)_k  +  weight || logits - scores + 1e-6 ||

    The distance is neither squared nor divided by K, and pulls the logits, not probabilities, to the scores.

    Args:
        weight: of the distance; 0: there is none.
        label_smoothing: which part of the labels is spread over all candidates.
        softmax: False: the mean binary cross-entropy of each candidate by itself.

    ``loss(logits, labels, scores)``: (K,) each, labels 0 or 1, the candidates of one mention.

    xMEN (Borchert et al., 2023), arXiv 2310.11275.
    """

    def __init__(self, weight: float = 1.0, label_smoothing: float = 0.0, softmax: bool = True):
        super().__init__()
        self.weight = check.number(self, "weight", weight)
        self.label_smoothing = check.number(self, "label_smoothing", label_smoothing, 0.0, 1.0)
        self.softmax = softmax

    def forward(self, logits: Tensor, labels: Tensor, scores: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "logits", logits, (None,), logits)
        check.flags(self, "labels", labels, logits.shape, logits)
        check.values(self, "scores", scores, logits.shape, logits)
        wide, s = accurate(logits), self.label_smoothing
        target = (1 - s) * labels.to(wide.dtype) + s / max(len(logits), 1)
        if self.softmax:
            loss = -(target * torch.log_softmax(wide, 0)).sum()
        else:
            loss = F.binary_cross_entropy_with_logits(wide, target)
        if self.weight:
            loss = loss + self.weight * root((wide - accurate(scores).to(wide.dtype) + SHIFT).square().sum())
        return loss.to(logits.dtype)
