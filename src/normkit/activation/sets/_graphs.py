"""Rows of several sets or graphs in one tensor, each with the number of the one that it belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.norm import Norm
from normkit.statistics import accurate


class PerGraph(Norm):
    """A norm of nodes ``x`` (nodes, C) of one graph, or of several, where ``batch`` (nodes,) numbers each node's."""

    def _members(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, int]:
        """Return the number of each node's graph, and how many numbers there is room for.

        Under a compiler or a transform, and of shapes alone, as many as nodes, which are enough where every number has
        one, since no shape may depend on what the numbers are.
        """
        check.floating(self, x)
        check.shape(self, "x", x, (None, None))
        if batch is None:
            return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device), 1
        check.index(self, "batch", batch, x.shape[:1], None, x)
        if not check.readable(batch) or not x.shape[0]:
            return batch, max(x.shape[0], 1)
        return batch, int(batch.max()) + 1


def sum_by(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Sum the rows of each number: (rows, ...) -> (count, ...)."""
    return x.new_zeros(count, *x.shape[1:]).index_add(0, index, x)


def rows_by(x: Tensor, index: Tensor, count: int) -> Tensor:
    """How many rows each number has, (count, 1), in the accurate type of x; at least 1."""
    return sum_by(torch.ones_like(accurate(x)[:, :1]), index, count).clamp(min=1)


def mean_by(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Mean of the rows of each number; 0 where there are none."""
    return sum_by(x, index, count) / rows_by(x, index, count)


def inverse_root(square: Tensor) -> Tensor:
    """1 / sqrt of what is not negative; 0 at 0, for a graph whose nodes are all equal, without eps. NaN stays NaN."""
    mask = square == 0
    return torch.where(mask, 0, torch.where(mask, 1, square).rsqrt())
