"""Contrastive calibration loss: good outputs of a model alike, bad ones unlike them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate
from normkit.text.training import _padded


@method(
    "contrastive-calibration-loss",
    paper="What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615, after "
    "CLIFF (Cao and Wang, 2021)",
    shape="B K T C",
    over="T",
    inputs={"labels": "B K T : index 3"},
)
class ContrastiveCalibrationLoss(Loss):
    """Pull the mean states of good outputs together, against those of all outputs of the same text.

    For a generator of text whose faithful outputs should have states unlike the others', beside its likelihood loss. It
    needs two good outputs of a text and knows no order among them; where a metric orders them, take
    ``rank-calibration-loss``.

    With z the mean of an output's states, of unit length, and a < b good ones,

        loss = mean over texts and pairs of  log sum_{d != a} exp(z_a . z_d)  -  z_a . z_b

    There is no temperature; the sum holds the other good ones, and the last of these is never an anchor.

    Args:
        positives: how many outputs, the first, are good, at least 2; None: half of them.

    ``loss(states, labels)``: projected states of the decoder (B, C, T, D), and words (B, C, T) with -100 for padding.

    What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615.

    Differs from the authors' code in: a mean of zero stays zero, where they divide by its length.
    """

    def __init__(self, positives: int | None = None):
        super().__init__()
        self.positives = None if positives is None else check.size(self, "positives", positives, least=2)

    def forward(self, states: Tensor, labels: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "states", states, (None, None, None, None), states)
        _, mask = _padded.words(self, "labels", labels, states)
        count = _padded.positives(self, self.positives, states.shape[1], 2)
        mask = mask.unsqueeze(-1)
        sums = torch.where(mask, accurate(states), 0).sum(2)
        z = F.normalize(sums / mask.sum(2).clamp(min=1), dim=-1)
        cosines = z @ z.transpose(1, 2)
        itself = torch.eye(z.shape[1], dtype=torch.bool, device=z.device)
        total = torch.logsumexp(cosines.masked_fill(itself, -torch.inf), -1, keepdim=True)
        a, b = torch.triu_indices(count, count, 1, device=z.device)
        pairs = (total - cosines)[:, a, b]
        return (pairs.sum() / max(pairs.numel(), 1)).to(states.dtype)
