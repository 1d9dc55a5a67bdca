"""TurboQuant's codebook: the best points for one coordinate of a random direction."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "turboquant-codebook"
PAPER = (
    "TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate (Zandieh et al., 2025), arXiv 2504.19874"
)
PROVENANCE = "no authors' code is known: algorithms 1 and 2 of the paper; the points agree with numerical integration"
CLOSE = 1e-15  # the largest move of a point at which rounds end
ROUNDS = 100_000
NODES = 400  # of the integral over one cell


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
    """The codebook as numbers."""
    import numpy as np
    from numpy.polynomial.legendre import leggauss

    if not bits:
        return (0.0,)
    nodes, weights = leggauss(NODES)

    def means(cuts):
        """The mean of each cell, in the angle t = sin(a), where the density is smooth: cos(a)^(dim - 2)."""
        angles = np.arcsin(np.clip(cuts, -1, 1))
        half, middle = np.diff(angles) / 2, (angles[1:] + angles[:-1]) / 2
        at = middle[:, None] + half[:, None] * nodes
        mass = weights * np.cos(at) ** (dim - 2)
        return (mass * np.sin(at)).sum(1) / mass.sum(1)

    reach = min(1.0, 5 / np.sqrt(dim))
    found = np.linspace(-reach, reach, 2**bits + 2)[1:-1]
    for _ in range(ROUNDS):
        new = means(np.concatenate([[-1], (found[1:] + found[:-1]) / 2, [1]]))
        new = (new - new[::-1]) / 2
        moved, found = np.abs(new - found).max(), new
        if moved < CLOSE:
            break
    return tuple(found.tolist())
