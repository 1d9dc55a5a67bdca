"""In-batch ranking loss: each anchor's own document against those of the others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate

SIMILARITIES = ("cosine", "dot")


@method(
    "in-batch-ranking-loss",
    paper="VacancySBERT: the approach for representation of titles and skills for semantic similarity search in the "
    "recruitment domain (Bocharova et al., 2023), arXiv 2307.16638",
    evidence="library",
    shape="N C",
    over="N",
    inputs={"positives": "N C"},
    exempt={"processes": "the documents of the whole batch are compared; join them before the call"},
)
class InBatchRankingLoss(Loss):
    """Hold the similarity of each anchor and its own document against that of all documents of the batch.

    For encoders of titles, columns or mentions that are then searched for neighbours. With s_ij the scaled similarity
    of anchor i and document j, the positives and then all blocks of negatives,

        loss = mean_i [ log sum_j exp s_ij - s_ii ]

    ``symmetric`` adds the similarities of positive i with all anchors to the same sum: one softmax, not two losses. Two
    equal positives are each other's false negatives, so take batches without duplicates.

    Args:
        scale: what similarities are multiplied by.
        similarity: ``"cosine"`` or ``"dot"``.
        symmetric: compare with the other anchors too.

    ``loss(anchors, positives, *negatives)``: (N, D) each, negatives of any number of rows.

    VacancySBERT (2023), arXiv 2307.16638, as sentence-transformers' MultipleNegativesRankingLoss, and DeepJoin (2023),
    arXiv 2212.07588.
    """

    def __init__(self, scale: float = 20.0, similarity: str = "cosine", symmetric: bool = False):
        super().__init__()
        self.scale = check.number(self, "scale", scale)
        self.similarity = check.choice(self, "similarity", similarity, SIMILARITIES)
        self.symmetric = symmetric

    def forward(self, anchors: Tensor, positives: Tensor, *negatives: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "anchors", anchors, (None, None), anchors)
        check.values(self, "positives", positives, anchors.shape, anchors)
        for block in negatives:
            check.values(self, "negatives", block, (None, anchors.shape[1]), anchors)
        rows = self._rows(anchors)
        documents = torch.cat([self._rows(block).to(rows.dtype) for block in (positives, *negatives)])
        scores = self.scale * rows @ documents.T
        own = torch.diagonal(scores)
        if self.symmetric:
            scores = torch.cat([scores, self.scale * documents[: len(rows)] @ rows.T], 1)
        loss = (torch.logsumexp(scores, 1) - own).mean() if len(rows) else scores.sum()
        return loss.to(anchors.dtype)

    def _rows(self, x: Tensor) -> Tensor:
        wide = accurate(x)
        return F.normalize(wide, dim=1) if self.similarity == "cosine" else wide
