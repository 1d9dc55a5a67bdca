"""How far rows or columns are from being orthonormal."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.statistics import full_precision


def distance(sets: Tensor) -> Tensor:
    """Return |S^T S - I|^2, or |S S^T - I|^2 where S (..., r, d) has fewer rows than columns, summed over all sets."""
    with full_precision(sets):
        gram = sets.mT @ sets if sets.shape[-2] >= sets.shape[-1] else sets @ sets.mT
    return (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).square().sum()
