"""Parts of a vector, each normalized by itself."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops


def groups(owner: object, dim: int, group_size: int | None) -> int:
    """Return how many groups of ``group_size`` entries a vector has; one where that is None."""
    size = dim if group_size is None else check.size(owner, "group_size", group_size)
    check.divides(owner, "group_size", size, "dim", dim)
    return dim // size


def grouped_row_norm(x: Tensor, count: int, rule: ops.Row) -> Tensor:
    """Normalize ``count`` equal parts of the last axis, each by its own statistic."""
    return (
        ops.row_norm(x, rule=rule) if count == 1 else ops.row_norm(x.unflatten(-1, (count, -1)), rule=rule).flatten(-2)
    )
