"""The objective of equiangular basis vectors: unit vectors with hardly any angle but a right one."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, full_precision


@method(
    "equiangular-basis-objective",
    paper="Equiangular Basis Vectors (Shen et al., 2023), arXiv 2303.11637",
    shape="C I",
    over="C I",
)
class EquiangularBasisObjective(Loss):
    """Add up the absolute cosines between vectors, as far as they exceed a threshold.

    For making the fixed weight of ``equiangular-basis``. Over all pairs (i, j), in both orders,

        loss = sum max(|w_i . w_j| - [i = j] - threshold, 0)

    Args:
        threshold: the cosine that is allowed.

    ``loss(weight)``: (K, d), rows of length 1. The caller normalizes them before, without a gradient.

    Equiangular Basis Vectors (Shen, Sun, Wei, 2023), arXiv 2303.11637.
    """

    def __init__(self, *, threshold: float = 0.002):
        super().__init__()
        self.threshold = check.number(self, "threshold", threshold, 0.0)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "weight", weight, (None, None), weight)
        wide = accurate(weight)
        with full_precision(weight):
            cosines = (wide @ wide.mT).abs()
        beyond = cosines - torch.eye(len(wide), dtype=wide.dtype, device=wide.device) - self.threshold
        return torch.relu(beyond).sum().to(weight.dtype)
