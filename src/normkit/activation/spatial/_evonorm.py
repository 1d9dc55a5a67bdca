"""What the batch-independent EvoNorms share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.norm import Norm


class EvoNormS(Norm):
    """Swish over the group's deviation; the classes differ in the slope and in whether the deviation is centered."""

    center = True

    def __init__(self, num_features: int, num_groups: int, eps: float, affine: bool, apply_act: bool):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        self.eps = check.eps(self, eps)
        self.affine, self.apply_act = bool(affine), bool(apply_act)
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize and activate ``x``."""
        check.channels_first(self, x, self.num_features)
        if not self.apply_act:
            return ops.affine(statistics.accurate(x), self.weight, self.bias).to(x.dtype)
        return ops.evonorm_s(x, self.num_groups, self.weight, self.bias, self.slope(), eps=self.eps, center=self.center)

    def slope(self) -> Tensor | None:
        """The swish's learned slope; None is 1."""
        return None


def most_groups(num_features: int, num_groups: int) -> int:
    """Return the largest number of at most ``num_groups`` that divides ``num_features``.

    >>> most_groups(14, 4)
    2
    """
    return next(g for g in range(min(num_groups, num_features), 0, -1) if num_features % g == 0)
