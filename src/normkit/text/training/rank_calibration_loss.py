"""Rank calibration loss: a model's likelihoods of its own outputs, in the order of their quality."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate
from normkit.text.training import _padded


@method(
    "rank-calibration-loss",
    paper="What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615, after "
    "BRIO (Liu et al., 2022), arXiv 2203.16804",
    shape="B K T C",
    over="T",
    inputs={"labels": "B K T : index C", "gold_logits?": "B T C", "gold_labels?": "B T : index C"},
)
class RankCalibrationLoss(Loss):
    """Ask that a better output be likelier than a worse one, by a margin that grows with how far they are apart.

    For a generator of text whose likeliest output is not its best, beside its likelihood loss, where a metric orders
    several outputs of each text, best first. Where outputs are only good or bad, take ``contrastive-calibration-loss``.

    With f the scaled log-likelihood of an output over a power of its length,

        loss = sum_d mean max(0, f_{c+d} - f_c + margin d)          d = 1 ... C - 1

    and with a reference, g its likelihood over its length, + mean max(0, f_c - g). Means are taken for each distance d
    and summed, so that pairs far apart, which are few, weigh more.

    Args:
        margin: for a distance of one.
        scale: what likelihoods are multiplied by.
        length_penalty: the power of the length; that of the reference is always 1.

    ``loss(logits, labels, gold_logits=None, gold_labels=None)``: (B, C, T, V), words (B, C, T) with -100 for padding,
    and of the reference (B, T, V), (B, T).

    What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615.

    Differs from the authors' code in: an output without words has a likelihood of 0, where they divide by zero.
    """

    def __init__(self, margin: float = 0.001, scale: float = 0.01, length_penalty: float = 1.0):
        super().__init__()
        self.margin = check.number(self, "margin", margin)
        self.scale = check.number(self, "scale", scale)
        self.length_penalty = check.number(self, "length_penalty", length_penalty)

    def forward(
        self, logits: Tensor, labels: Tensor, gold_logits: Tensor | None = None, gold_labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "logits", logits, (None, None, None, None), logits)
        f = self._score("labels", logits, labels, self.length_penalty)
        loss = f.sum() * 0
        for d in range(1, f.shape[1]):
            loss = loss + _mean((f[:, d:] - f[:, :-d] + self.margin * d).clamp(min=0))
        if (gold_logits is None) != (gold_labels is None):
            raise ValueError("RankCalibrationLoss: gold_logits and gold_labels must be given both, or none of them")
        if gold_logits is not None and gold_labels is not None:
            check.values(self, "gold_logits", gold_logits, (len(logits), None, logits.shape[-1]), logits)
            loss = loss + _mean(
                (f - self._score("gold_labels", gold_logits, gold_labels, 1.0).unsqueeze(1)).clamp(min=0)
            )
        return loss.to(logits.dtype)

    def _score(self, name: str, logits: Tensor, labels: Tensor, power: float) -> Tensor:
        known, mask = _padded.words(self, name, labels, logits, logits.shape[-1])
        wide = torch.where(mask.unsqueeze(-1), accurate(logits), 0)
        likely = torch.log_softmax(wide, -1).gather(-1, known.unsqueeze(-1)).squeeze(-1)
        count = mask.sum(-1).clamp(min=1).to(likely.dtype)
        return self.scale * torch.where(mask, likely, 0).sum(-1) / count**power


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)
