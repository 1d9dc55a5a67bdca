"""Rows of several sets or graphs in one tensor, each with the number of the one that it belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check


def numbered(owner: object, name: str, index: Tensor | None, x: Tensor) -> tuple[Tensor, int]:
    """Return the number of each row's graph, all one graph where None, and how many numbers there is room for.

    As many as rows are enough where every graph has one, so that no shape depends on what the numbers are.
    """
    if index is None:
        return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device), 1
    rows = x.shape[0]
    check.index(owner, name, index, (rows,), max(rows, 1), x)
    return index, rows


def sum_by(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Sum the rows of each number: (rows, ...) -> (count, ...)."""
    return x.new_zeros(count, *x.shape[1:]).index_add(0, index, x)


def mean_by(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Mean of the rows of each number; 0 where there are none."""
    rows = sum_by(torch.ones_like(x[:, :1]), index, count)
    return sum_by(x, index, count) / rows.clamp(min=1)
