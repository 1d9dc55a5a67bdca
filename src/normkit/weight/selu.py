"""SELU: an activation that brings features back to mean 0 and variance 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

SCALE = 1.0507009873554804934193349852946
ALPHA = 1.6732632423543772848170429916717


@method(
    "selu",
    paper="Self-Normalizing Neural Networks (Klambauer et al., 2017), arXiv 1706.02515",
    shape="... C",
    over="",
    peer=lambda features: nn.SELU(),
)
class SELU(Method):
    """Multiply positive numbers by 1.05, and bend negative ones towards -1.76.

    For deep feed-forward networks without norms: from layer to layer mean and variance contract to 0 and 1, if weights
    begin as :func:`lecun_normal_`, inputs are standardized and dropout is ``alpha-dropout``.

        y = scale x  where x >= 0,  else  scale alpha (exp(x) - 1),    scale = 1.0507, alpha = 1.6733

    Self-Normalizing Neural Networks (Klambauer et al., 2017), arXiv 1706.02515.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Bend each number of ``x``."""
        check.floating(self, x)
        wide = accurate(x)
        negative = SCALE * ALPHA * torch.expm1(torch.where(wide > 0, 0, wide))
        return torch.where(wide > 0, SCALE * wide, negative).to(x.dtype)


@torch.no_grad()
def lecun_normal_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill a weight in place with N(0, 1 / fan_in), fan_in the product of all sizes but the first."""
    check.floating("lecun_normal_", weight, "weight")
    if weight.dim() < 2:
        raise ValueError(f"lecun_normal_: weight must have two axes or more, but its shape is {tuple(weight.shape)}")
    fan_in = math.prod(weight.shape[1:])
    if fan_in == 0:
        raise ValueError(f"lecun_normal_: weight must have an input, but its shape is {tuple(weight.shape)}")
    return weight.normal_(0, 1 / math.sqrt(fan_in), generator=generator)
