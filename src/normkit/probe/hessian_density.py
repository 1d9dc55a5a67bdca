"""The spectrum of a Hessian as a curve: every eigenvalue a narrow Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.probe.hessian_criteria import PAPER, runs


class Density(NamedTuple):
    """The density, and the points that it stands at."""

    density: Tensor
    grid: Tensor


@method(
    "hessian-density",
    paper=PAPER,
    shape="N K",
    over="K",
    inputs={"weights": "N K : simplex"},
    example={"bins": 20, "variance": 0.05},
    exempt={"gradcheck": "a probe, not a loss: it has no gradient"},
)
@torch.no_grad()
def hessian_density(
    eigenvalues: Tensor, weights: Tensor, *, bins: int = 10000, variance: float = 1e-5, margin: float = 1e-3
) -> Density:
    """Draw the density of a Hessian's spectrum from some runs of Lanczos' iteration.

    For pictures of curvature. The grid goes from the mean of the runs' least eigenvalues less the margin to that of
    their largest and the margin. With the eigenvalues e and weights w of the runs,

        density = sum w N(grid; e, variance max(1, length of the grid)),    divided by its sum times the spacing

    Args:
        eigenvalues: of the runs, (R, k), at least one of each.
        weights: theirs, (R, k), not negative.
        bins: points of the grid.
        variance: of a Gaussian, where the grid is one long or shorter.
        margin: how far the grid reaches beyond the eigenvalues.

    Returns ``density`` and ``grid``, (bins,) each. No gradient.

    Investigating generalization capabilities (Gabdullin, 2024), arXiv 2412.10146.
    """
    name = "hessian_density"
    values, masses = runs(name, eigenvalues, weights)
    bins = check.size(name, "bins", bins, 2)
    variance = check.number(name, "variance", variance, 0.0, open_low=True)
    margin = check.number(name, "margin", margin, 0.0)
    low, high = values.amin(1).mean() - margin, values.amax(1).mean() + margin
    unit = torch.linspace(0, 1, bins, dtype=values.dtype, device=values.device)
    grid = torch.lerp(low, high, unit)
    wide = variance * (high - low).clamp(min=1)
    # the largest exponent is taken out, so that a grid too coarse for its Gaussians still has a density
    log = -(grid[:, None] - values.flatten()).square() / (2 * wide) + masses.flatten().log()
    density = torch.softmax(log.logsumexp(1), 0) * (bins - 1) / (high - low)
    return Density(density.to(eigenvalues.dtype), grid.to(eigenvalues.dtype))
