"""FedLD's loss: cross-entropy that is not made ever surer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate


@method(
    "margin-log-loss",
    paper="Tackling Data Heterogeneity in Federated Learning via Loss Decomposition (Zeng et al., 2024), "
    "arXiv 2408.12300",
    shape="N C",
    over="C",
    inputs={"target": "N : index C"},
    invariant=("shift",),
)
class MarginLogLoss(Loss):
    """Add to the cross-entropy the logarithm of how sure the batch is of itself.

    For clients with few classes, who else drift by raising logits that the others never see. With p the softmax,

        mean(-log p[target]) + weight log(1 + sum over the whole batch of p²)

    The sum lies between N / C and N, so the term depends on the batch size.

    Args:
        weight: of the second term.

    ``loss(logits, target)``: (N, C) and classes int64 (N,). The server's side is ``principal-gradient``.

    Tackling Data Heterogeneity in Federated Learning via Loss Decomposition (Zeng et al., 2024), arXiv 2408.12300.
    """

    def __init__(self, weight: float = 0.03):
        super().__init__()
        self.weight = check.number(self, "weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "logits", logits, (None, None), logits)
        check.index(self, "target", target, logits.shape[:1], logits.shape[1], logits)
        log_prob = torch.log_softmax(accurate(logits), 1)
        sure = (2 * log_prob).exp().sum()
        return (F.nll_loss(log_prob, target) + self.weight * torch.log1p(sure)).to(logits.dtype)
