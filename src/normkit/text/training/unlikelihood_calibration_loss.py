"""Unlikelihood calibration loss: the words of good outputs likelier, those of bad ones less likely."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate
from normkit.text.training import _padded

LEAST = 1e-10  # of a probability not to write a word


@method(
    "unlikelihood-calibration-loss",
    paper="What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615",
    shape="B K T C",
    over="B K T",
    inputs={"labels": "B K T : index C"},
    exempt={"processes": "words are counted over the whole batch; join it before the call"},
)
class UnlikelihoodCalibrationLoss(Method):
    """Measure how likely the words of good outputs are, and how unlikely those of bad ones.

    For a generator of text whose outputs are marked good or bad, beside its likelihood loss. It is the weakest of the
    paper's three: try ``rank-calibration-loss`` or ``contrastive-calibration-loss`` first.

    Over the words of the good outputs q = -log p, over those of the bad ones q = -log max(1 - p, 1e-10), p a word's
    probability, and each loss is

        (1 - smoothing) mean q of the word that is there  +  smoothing mean q of all words

    The smoothing of the second pushes down the probabilities of *all* words.

    Args:
        positives: how many outputs, the first, are good; None: half of them.
        smoothing: the weight of all words.

    ``loss(logits, labels)``: (B, C, T, V), and words (B, C, T) with -100 for padding; gives (likelihood, unlikelihood),
    two single numbers, 0 where there are no words.

    What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615.

    Differs from the authors' code in: float64 is computed in float64.
    """

    def __init__(self, positives: int | None = None, smoothing: float = 0.1):
        super().__init__()
        self.positives = None if positives is None else check.size(self, "positives", positives)
        self.smoothing = check.number(self, "smoothing", smoothing, 0.0, 1.0)

    def forward(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return both losses."""
        check.values(self, "logits", logits, (None, None, None, None), logits)
        known, mask = _padded.words(self, "labels", labels, logits, logits.shape[-1])
        count = _padded.positives(self, self.positives, logits.shape[1], 1)
        wide = torch.where(mask.unsqueeze(-1), accurate(logits), 0)
        good = -torch.log_softmax(wide[:, :count], -1)
        bad = -(1 - torch.softmax(wide[:, count:], -1)).clamp(min=LEAST).log()
        first = self._loss(good, known[:, :count], mask[:, :count])
        return first.to(logits.dtype), self._loss(bad, known[:, count:], mask[:, count:]).to(logits.dtype)

    def _loss(self, q: Tensor, known: Tensor, mask: Tensor) -> Tensor:
        own = q.gather(-1, known.unsqueeze(-1)).squeeze(-1)
        each = torch.where(mask, (1 - self.smoothing) * own + self.smoothing * q.mean(-1), 0)
        return each.sum() / mask.sum().clamp(min=1)
