"""What the cores that form every score share."""

from __future__ import annotations

from torch import Tensor


def keys_seen(seen: Tensor | None, scores: Tensor) -> Tensor:
    """How many keys each query of ``scores`` (..., T, S) sees, at least 1, as (..., T, 1); None is all."""
    keys = scores.shape[-1]
    if seen is None:
        return scores.new_full((1, 1), max(keys, 1))
    return seen.expand(*seen.shape[:-1], keys).sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
