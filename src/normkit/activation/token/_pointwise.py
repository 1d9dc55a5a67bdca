"""What the functions in the place of a norm share: a gain, a shift, and features on the last or the second axis."""

from __future__ import annotations

import torch
from torch import nn

from normkit import check
from normkit.norm import Norm


class PointwiseNorm(Norm):
    """A bounded function of every entry, then a learned gain and shift a feature; no statistic is taken."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, dim: int, *, bias: bool = True, channels_last: bool = True):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.channels_last = bool(channels_last)
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)


def scalar(owner: object, name: str, value: float) -> nn.Parameter:
    """Return a learned number of the whole layer, stored as (1,)."""
    return nn.Parameter(torch.tensor([check.number(owner, name, value)]))
