"""Distances of points."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.statistics import accurate


@torch.no_grad()
def squared_distances(x: Tensor) -> Tensor:
    """Return the squared distances (N, N) of points (N, ...), by differences and not by products."""
    rows = accurate(x).unsqueeze(-1).flatten(1)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
