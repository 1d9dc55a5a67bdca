"""Each coordinate bent by a curve of two numbers, its skewness and the weight of its tails.

The curve is sinh(tail asinh(x) + skew), of Jones and Pewsey (2009).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit.density._parts import Part
from normkit.density._recipe import FlowSizes, Recipe


class SinhArcsinh(Part):
    """One bend of each coordinate."""

    def __init__(self, dim: int):
        super().__init__()
        self.skew, self.log_tail = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, condition=None) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        bent = self.log_tail.exp() * x.asinh() + self.skew
        return bent.sinh(), (self.log_tail + bent.cosh().log() - (1 + x.square()).log() / 2).sum(-1)

    def inverse(self, z: Tensor, condition=None) -> Tensor:
        """Return what ``z`` is the image of."""
        return ((z.asinh() - self.skew) * (-self.log_tail).exp()).sinh()


def build(sizes: FlowSizes) -> list[nn.Module]:
    """Build the parts."""
    return [SinhArcsinh(sizes.dim) for _ in range(sizes.depth)]


FLOW = Recipe(build, depth=1)
