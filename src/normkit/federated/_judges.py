"""What FedLabel's parts share: which of two models labels a sample."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import accurate

PAPER = (
    "Local or Global: Selective Knowledge Assimilation for Federated Learning with Limited Labels (Cho et al., 2023), "
    "arXiv 2307.08809"
)
MEASURES = ("variance", "entropy")


def options(owner: object, threshold: float, measure: str, temperature: float) -> tuple[float, str, float]:
    """Check what both parts take."""
    return (
        check.number(owner, "threshold", threshold, 0.0, 1.0),
        check.choice(owner, "measure", measure, MEASURES),
        check.number(owner, "temperature", temperature, 0.0, open_low=True),
    )


def judge(
    received: Tensor, trained: Tensor, threshold: float, measure: str, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return labels, weights, whether the trained model gave the label, and whether a sample is used; all (N,)."""
    p, q = (torch.log_softmax(accurate(logits.detach()) / temperature, 1) for logits in (received, trained))
    sure, surer = _confidence(p, measure), _confidence(q, measure)
    own = sure < surer
    low, high = torch.minimum(sure, surer), torch.maximum(sure, surer)
    weight = torch.where(high > 0, low / torch.where(high > 0, high, 1), 1)
    best, label = torch.where(own.unsqueeze(1), q, p).max(1)
    return label, weight, own, best.exp() > threshold


def _confidence(log_prob: Tensor, measure: str) -> Tensor:
    prob = log_prob.exp()
    if measure == "entropy":
        return 1 / ((-prob * log_prob).sum(1) + 1e-5)
    return (prob - prob.mean(1, keepdim=True)).square().sum(1) / max(prob.shape[1] - 1, 1)
