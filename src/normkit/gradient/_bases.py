"""Bases of the two sides of matrices, as SOAP and its kin keep them: statistics of gradients, and their directions."""

from __future__ import annotations

import torch
from torch import Tensor

KEPT = frozenset(f"{name}{axis}" for name in ("GG", "Q") for axis in range(8))  # in a state, exact in half precision


def leading(statistic: Tensor) -> Tensor:
    """The eigenvectors of symmetric matrices, as columns, that of the largest eigenvalue first.

    >>> leading(torch.diag(torch.tensor([1.0, 2.0]))).abs()
    tensor([[0., 1.],
            [1., 0.]])
    """
    return torch.linalg.eigh(statistic).eigenvectors.flip(-1)


def refined(statistic: Tensor, basis: Tensor) -> Tensor:
    """A basis after one power iteration."""
    return torch.linalg.qr(statistic @ basis).Q


def turned(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Write matrices in bases of their two sides."""
    return left.mT @ x @ right


def turned_back(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Write matrices in their own coordinates again."""
    return left @ x @ right.mT
