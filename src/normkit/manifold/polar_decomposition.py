"""A matrix as a stretch and a rotation."""

from __future__ import annotations

from torch import Tensor

from normkit.catalog import method
from normkit.kinds import beside
from normkit.manifold import _lie, _symmetric


@method(
    "polar-decomposition",
    paper="Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré, 2024), arXiv 2310.11366",
    shape="N C C : oriented",
    over="",
    exempt={"second-derivatives": _symmetric.FIRST},
)
def polar_decomposition(g: Tensor) -> tuple[Tensor, Tensor]:
    """Split matrices into a positive definite factor and a rotation.

    For groups of matrices that the exponential map does not reach: every element with a positive determinant is one
    product of both.

        spd = sqrt(g gᵀ),    rotation = spd⁻¹ g,    g = spd rotation

    ``nk.create("polar-decomposition").log(g)`` returns the logarithm of the first factor in its place.

    Args:
        g: matrices (N, n, n) with positive determinants; another is refused.

    Returns two tensors (N, n, n). The gradient is right where singular values are equal.

    Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré, 2024), arXiv 2310.11366.
    """
    wide = _lie.elements("polar-decomposition", g)
    spd, _, rotation = _lie.polar(wide)
    return spd.to(g.dtype), rotation.to(g.dtype)


@beside(polar_decomposition)
def log(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the positive definite factor, and the rotation."""
    wide = _lie.elements("polar-decomposition", g)
    _, stretch, rotation = _lie.polar(wide)
    return stretch.to(g.dtype), rotation.to(g.dtype)
