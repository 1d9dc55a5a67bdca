"""Sinkhorn's normalization: rows and columns of small positive matrices in turn."""

from __future__ import annotations

import torch
from torch import Tensor


def sinkhorn(scores: Tensor, iterations: int = 20, eps: float = 1e-6) -> Tensor:
    """Return nearly doubly stochastic matrices (..., n, n) of ``scores``, whose gradient goes through all iterations.

    A softmax over each row, plus eps; then each column, and ``iterations - 1`` times each row and each column, is
    divided by its sum plus eps. So columns sum to 1 up to eps, rows as far as the iterations have converged.

    >>> sinkhorn(torch.tensor([[0.0, 1.0], [2.0, 0.0]])).sum(-2)
    tensor([1.0000, 1.0000])
    """
    m = torch.softmax(scores, -1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return m
