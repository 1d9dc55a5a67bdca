"""Each coordinate bent by a curve of two numbers, its skewness and the weight of its tails.

The curve is sinh(tail asinh(x) + skew), of Jones and Pewsey (2009). It begins at the identity; couplings of other flows
mix coordinates, this one does not.
"""

import torch
from torch import Tensor, nn

from normkit.density import FlowCondition, FlowSizes, Part, Recipe


class SinhArcsinh(Part):
    """One bend of each coordinate."""

    def __init__(self, dim: int):
        super().__init__()
        self.skew, self.log_tail = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        bent = self.log_tail.exp() * x.asinh() + self.skew
        log_slope = self.log_tail + bent.cosh().log() - (1 + x.square()).log() / 2
        return bent.sinh(), log_slope.sum(-1)

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        return ((z.asinh() - self.skew) * (-self.log_tail).exp()).sinh()


def build(sizes: FlowSizes) -> list[nn.Module]:
    """Build the parts."""
    return [SinhArcsinh(sizes.dim) for _ in range(sizes.depth)]


FLOW = Recipe(build, depth=1)
