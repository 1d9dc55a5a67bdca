"""Bases of the two sides of matrices, as SOAP and its kin keep them: statistics of gradients, and their directions."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.gradient._matrices import cut_as
from normkit.gradient._optimizer import move_moments
from normkit.ops.spectral import by_lapack

KEPT = frozenset(f"{name}{axis}" for name in ("GG", "Q") for axis in range(8))  # in a state, exact in half precision


def eigenbasis(statistic: Tensor) -> Tensor:
    """The eigenvectors of symmetric matrices, as columns, that of the largest eigenvalue first.

    >>> eigenbasis(torch.diag(torch.tensor([1.0, 2.0]))).abs()
    tensor([[0., 1.],
            [1., 0.]])
    """
    return by_lapack(torch.linalg.eigh, statistic).eigenvectors.flip(-1)


def power_step(statistic: Tensor, basis: Tensor) -> Tensor:
    """A basis after one power iteration."""
    return torch.linalg.qr(statistic @ basis).Q


def project(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Write matrices in bases of their two sides."""
    return left.mT @ x @ right


def project_back(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Write matrices in their own coordinates again."""
    return left @ x @ right.mT


def move_bases(state: dict) -> None:
    """Take a power iteration for the bases of rows and of columns."""
    for side in (0, 1):
        state[f"Q{side}"] = power_step(state[f"GG{side}"], state[f"Q{side}"])


def adam_direction(p: Tensor, h: Tensor, state: dict, group: dict) -> Tensor:
    """Move Adam's moments by a gradient in bases, and return the direction there, which is not corrected."""
    m, v = state["exp_avg"], state["exp_avg_sq"]
    move_moments([cut_as(h, p)], [m], [v], group["betas"])
    return m / v.sqrt().add_(group["eps"])
