"""Alignment and uniformity of points on a sphere."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6  # of the mean under the logarithm


def alignment(features: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """Mean of the distances between features of one label, to the power alpha; 0 where no label comes twice."""
    square, pair = _pairs(features)
    pair = pair & (labels == labels.unsqueeze(1))
    apart = pair & (square > 0)  # a distance of 0 gets no gradient
    powers = torch.where(apart, torch.where(apart, square, 1) ** (alpha / 2), 0)
    return powers.sum() / pair.sum().clamp(min=1)


def uniformity(features: Tensor, temperature: float) -> Tensor:
    """Log of the mean Gaussian kernel of all pairs."""
    square, pair = _pairs(features)
    kernel = torch.where(pair, torch.exp(-temperature * square), 0)
    return (kernel.sum() / pair.sum().clamp(min=1)).clamp(min=LEAST).log()


def _pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances (N, N), and which of them are those of a pair i < j."""
    square = (features.unsqueeze(0) - features.unsqueeze(1)).square().sum(-1)
    return square, torch.ones_like(square, dtype=torch.bool).triu(1)
