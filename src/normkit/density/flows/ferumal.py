"""Couplings by kernels around a few points, for few data.

The parts are ``ferumal-coupling``. Options: ``num_points``, ``kernel``.
"""

from __future__ import annotations

from torch import nn

from normkit import catalog
from normkit.density._recipe import FlowSizes, Recipe


def build(sizes: FlowSizes, num_points: int = 32, kernel: str = "squared-exponential") -> list[nn.Module]:
    """Build the parts."""
    parts: list[nn.Module] = []
    for _ in range(sizes.depth):
        parts += [catalog.create("ferumal-coupling", sizes.dim, num_points=num_points, kernel=kernel), Reversed()]
    return parts


class Reversed(nn.Module):
    """The coordinates in reverse, so that the next coupling bends the other half."""

    def forward(self, x):
        """Return them, and a log-determinant of 0."""
        return x.flip(-1), x.new_zeros(len(x))

    def inverse(self, z):
        """Return what they are the reverse of."""
        return z.flip(-1)


FLOW = Recipe(build, depth=6, small={"num_points": 5})
