"""Alignment and uniformity of points on a sphere."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6  # of the mean under the logarithm
NEAR = 64 * torch.finfo(torch.float64).eps


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
    """Squared distances (N, N), and which of them are those of a pair i < j.

    By products, since all differences are N x N x D numbers; about the mean and in float64, where what this loses is
    less than float32 has. Points nearer than that are one point.
    """
    centred = features.double() - features.double().mean(0)
    length = centred.square().sum(-1)
    reach = length + length.unsqueeze(1)
    square = reach - 2 * centred @ centred.mT
    square = torch.where(square > NEAR * reach, square, 0)
    return square, torch.ones_like(square, dtype=torch.bool).triu(1)
