"""What FedLAW's parts share: shares and a shrink factor, as functions of free numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.federated._states import total

PAPER = "Revisiting Weighted Aggregation in Federated Learning with Neural Networks (Li et al., 2023), arXiv 2302.10911"
FUNCTIONS = ("exp", "square")


def weights(share_logit: Tensor, shrink_logit: Tensor, function: str) -> tuple[Tensor, Tensor]:
    """Return the clients' shares (K,), and the shrink factor."""
    if function == "exp":
        return torch.softmax(share_logit, 0), shrink_logit.exp()
    square = share_logit.square()
    return square / square.sum(), shrink_logit.square()


def aggregate(stacked: Sequence[Tensor], share: Tensor, shrink: Tensor) -> list[Tensor]:
    """Return shrink times the states' sum by shares, one tensor an entry, in float64."""
    return [shrink * total(value.double() * share.reshape(-1, *(1,) * (value.dim() - 1))) for value in stacked]
