"""Points of the ball moved inwards or outwards by a learned matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.manifold import _ball
from normkit.statistics import accurate, full_precision


@method(
    "radius-scaling",
    paper="H4G: Unlocking Faithful Inference for Zero-Shot Graph Learning in Hyperbolic Space (2025), arXiv 2510.12094",
    evidence="abstract",
    shape="... C : ball",
    over="",
    exempt={f"extremes {values}": _ball.OUTSIDE for values in ("ones", "huge", "offset")},
    provenance="No code was found: the multiplication is that of Möbius, the rest is the abstract's words.",
)
class RadiusScaling(Method):
    """Multiply points of the ball of Poincaré by a matrix of blocks, which scales their distances to the origin.

    For embeddings of frozen encoders whose radii are too large: a small radius keeps fine detail, a large one
    abstraction. With W the blocks on a diagonal and s = sqrt(c),

        y = tanh(|W x| / |x| artanh(s |x|)) W x / (s |W x|)

    A multiple k of the identity multiplies the distance to the origin by k, and keeps the direction.

    Args:
        dim: size of the last axis.
        blocks: how many W has, each of dim / blocks; it mixes within a block only.
        c: minus the curvature.

    Input and output points (..., dim) of the ball of radius 1 / sqrt(c). State: ``weight`` (blocks, dim / blocks,
    dim / blocks), identities at the start.

    H4G (2025), arXiv 2510.12094.
    """

    def __init__(self, dim: int, *, blocks: int = 1, c: float = 1.0):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.blocks = check.size(self, "blocks", blocks)
        check.divides(self, "blocks", blocks, "dim", dim)
        self.c = check.number(self, "c", c, 0.0, open_low=True)
        self.weight = nn.Parameter(torch.eye(dim // blocks).repeat(blocks, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return points of the ball."""
        check.features_last(self, x, self.dim)
        wide, weight = accurate(x), accurate(self.weight)
        _ball.require_inside(self, "x", wide, self.c)
        parts = wide.to(weight.dtype).unflatten(-1, (self.blocks, -1))
        with full_precision(x):
            moved = torch.einsum("...bi,boi->...bo", parts, weight).flatten(-2)
        return _ball.multiply(wide, moved, self.c).to(x.dtype)

    def radius(self, x: Tensor) -> Tensor:
        """Return the hyperbolic distances (...,) of points to the origin."""
        check.features_last(self, x, self.dim)
        root = math.sqrt(self.c)
        return (2 / root * _ball.artanh(root * _ball.norm(accurate(x)))).squeeze(-1).to(x.dtype)
