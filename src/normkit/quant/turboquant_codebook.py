"""TurboQuant's codebook: the best points for one coordinate of a random direction."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "turboquant-codebook"
PAPER = (
    "TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate (Zandieh et al., 2025), arXiv 2504.19874"
)
PROVENANCE = "no authors' code is known: algorithms 1 and 2 of the paper; the points agree with numerical integration"
CLOSE = 1e-9  # of a deviation, below which moves may be rounding
ROUNDS = 200
NODES = 400  # of the integral over one cell
FAR = 15  # deviations, beyond which the density is left out


@method(
    NAME,
    paper=PAPER,
    evidence="equations",
    shape="C",
    provenance=PROVENANCE,
    example={"dim": 8, "bits": 2},
    exempt={"gradcheck": "it takes no tensor"},
)
def turboquant_codebook(*, dim: int, bits: int) -> Tensor:
    """Return the 2^bits points that are nearest, in mean square, to a coordinate of a random unit vector.

    For ``turboquant``, which rounds the coordinates of a randomly rotated unit vector to these points. Numbers of
    another distribution have other nearest points.

    The density of a coordinate in ``dim`` dimensions is (1 - t²)^((dim - 3) / 2) on [-1, 1]. Each point is the mean of
    its cell, and cells are cut half-way between points (Lloyd, Max).

    Args:
        dim: D, at least 2.
        bits: of a code.

    Returns (2^bits,), float64, ascending and symmetric.

    TurboQuant (Zandieh et al., 2025), arXiv 2504.19874.
    """
    check.size(NAME, "dim", dim, least=2), check.size(NAME, "bits", bits, least=0, most=8)
    return torch.tensor(points(dim, bits), dtype=torch.float64)


@functools.cache
def points(dim: int, bits: int) -> tuple[float, ...]:
    """The codebook as numbers.

    Lloyd's rounds take four times as many with each bit; Newton's method for the same equation takes a dozen steps.
    """
    import numpy as np

    if not bits:
        return (0.0,)
    reach = min(1.0, 5 / np.sqrt(dim))
    levels: Any = np.linspace(-reach, reach, 2**bits + 2)[1:-1]
    moved: Any = np.inf
    for _ in range(ROUNDS):
        means, slopes = cells((levels[1:] + levels[:-1]) / 2, dim)
        new = levels + np.linalg.solve(np.eye(2**bits) - slopes, means - levels)
        new = (new - new[::-1]) / 2
        if (np.diff(new) <= 0).any() or new[-1] >= 1:  # too long a step: one of Lloyd's keeps the order
            new = (means - means[::-1]) / 2
        before, moved, levels = moved, np.abs(new - levels).max(), new
        if moved < CLOSE / np.sqrt(dim) and moved >= before / 2:  # what still moves is rounding
            break
    return tuple(levels.tolist())


def cells(cuts: Any, dim: int) -> tuple[Any, Any]:
    """Return the mean of each of n cells between n - 1 cuts, and its slope by each of the n points, (n, n)."""
    import numpy as np

    nodes, weights = _quadrature()
    # in the angle t = sin(a) the density is smooth, cos(a)^(dim - 2)
    inner, edge = np.arcsin(cuts), min(np.pi / 2, FAR / np.sqrt(dim))
    angles = np.concatenate([[-edge], inner, [edge]])
    half, middle = np.diff(angles) / 2, (angles[1:] + angles[:-1]) / 2
    at = middle[:, None] + half[:, None] * nodes
    mass = half[:, None] * weights * np.cos(at) ** (dim - 2)
    mean = (mass * np.sin(at)).sum(1) / mass.sum(1)
    # a cut that moves takes its density's share of a cell, at its distance from the cell's mean
    density = np.cos(inner) ** (dim - 3)
    left, right = (
        density * np.abs(cuts - side) / total
        for side, total in ((mean[1:], mass[1:].sum(1)), (mean[:-1], mass[:-1].sum(1)))
    )
    slope = np.diag(left, -1) + np.diag(right, 1)
    return mean, (slope + np.diag(slope.sum(1))) / 2


@functools.cache
def _quadrature() -> tuple[Any, Any]:
    from numpy.polynomial.legendre import leggauss

    return leggauss(NODES)
