"""Distances between points of the ball of Poincaré."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold._ball import Clamped, require_inside
from normkit.statistics import reals


@method(
    "poincare-distance-matrix",
    paper="Hyperbolic Category Discovery (Liu et al., 2025), CVPR, arXiv 2504.06120",
    shape="N C : ball",
    over="C",
    inputs={"y": "G C : ball"},
    example={"c": 0.5},
)
def poincare_distance_matrix(x: Tensor, y: Tensor, *, c: float) -> Tensor:
    """Return the hyperbolic distance of every point of one set to every point of another.

    For embeddings of trees, whose leaves lie near the border, far from each other. With the addition of Möbius,

        distance = 2 / sqrt(c) artanh(sqrt(c) |(-x) + y|)

    Args:
        x, y: points (N, D) and (M, D) of the ball of radius 1 / sqrt(c).
        c: minus the curvature.

    Returns (N, M). As in the authors' code 1e-5 is added to a denominator and artanh is bounded: no distance exceeds
    12.21 / sqrt(c). Hyperbolic Category Discovery (Liu et al., 2025), arXiv 2504.06120.
    """
    a = reals("poincare-distance-matrix", "x", x, (None, None))
    b = reals("poincare-distance-matrix", "y", y, (None, x.shape[1]), x)
    c = check.number("poincare-distance-matrix", "c", c, 0.0, open_low=True)
    for name, points in (("x", a), ("y", b)):
        require_inside("poincare-distance-matrix", name, points, c)
    return Clamped.distances(a, b, c).to(x.dtype)
