"""Coordinates of two-by-two matrices: their stretch and their angle."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold import _lie, _symmetric


@method(
    "lie-coordinates",
    paper="Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré, 2024), arXiv 2310.11366",
    shape="N 2 2 : oriented",
    over="",
    exempt={"second-derivatives": _symmetric.FIRST},
)
def lie_coordinates(g: Tensor, *, group: str = "gl2", alpha: float = 1.0) -> Tensor:
    """Turn invertible 2 by 2 matrices into the numbers of their symmetric logarithm, and an angle.

    For kernels on a group, small networks of these coordinates. With S the logarithm of the positive definite factor of
    ``polar-decomposition``, theta in [0, 2 pi) the angle of the rotation, and o = 1 / sqrt(2 alpha),

        "gl2":  S_00 sqrt(alpha), S_01 / o, S_11 sqrt(alpha), theta
        "sl2":  S_01 / o, theta, S_00 / o

    all but the angle orthonormal for the metric alpha tr(XᵀY). They jump where the angle passes 0.

    Args:
        g: matrices (N, 2, 2), with positive determinants, of ``"sl2"`` with determinants of 1.
        group: ``"gl2"`` or ``"sl2"``.
        alpha: of the metric.

    Returns (N, 4), of ``"sl2"`` (N, 3). Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré,
    2024), arXiv 2310.11366.
    """
    wide = _lie.elements("lie-coordinates", g, 2)
    group = check.choice("lie-coordinates", "group", group, _lie.GROUPS)
    alpha = check.number("lie-coordinates", "alpha", alpha, 0.0, open_low=True)
    _, stretch, rotation = _lie.polar(wide)
    sine, cosine = rotation[:, 1, 0], rotation[:, 0, 0]
    angle = torch.atan2(torch.where(sine.abs() < 1e-6, 0, sine), cosine) % (2 * math.pi)
    across, along = stretch[:, 0, 1] * math.sqrt(2 * alpha), stretch.diagonal(0, -2, -1)
    if group == "sl2":
        coordinates = [across, angle, along[:, 0] * math.sqrt(2 * alpha)]
    else:
        coordinates = [along[:, 0] * math.sqrt(alpha), across, along[:, 1] * math.sqrt(alpha), angle]
    return torch.stack(coordinates, 1).to(g.dtype)
