"""A robust loss that has no threshold but a largest noise: outliers count alike."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

# degrees of freedom: C, the root of the 0.99 quantile of chi-square, and the upper incomplete gamma function there
KNOWN = {
    3: (0.4029720004054876, 3.368214175218727, 3.439485560754856e-3),
    4: (0.2525252525252525, 3.643721193503644, 3.611260617758625e-3),
    9: (0.003837828575290349, 4.654674460524809, 3.344206155099048e-2),
}
OUTSIDE = 1e-5  # the slope that outliers keep, so that a solver sees no flat loss


@method(
    "magsac-loss",
    paper="Revisiting Rotation Averaging: Uncertainties and Robust Losses (Zhang et al., 2023), CVPR, arXiv 2303.05195",
    shape="N : unit",
    over="",
    example={"sigma": 1.0},
)
def magsac_loss(squared: Tensor, *, sigma: float, dof: int = 3, inverse: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return a robust loss of squared residuals, and its first two derivatives, as solvers of least squares take them.

    For least squares with outliers, such as the averaging of rotations, where no threshold between noise and outlier is
    known. Outliers have hardly a pull, so begin near the solution. ``rotation-residual`` gives such residuals.

    The likelihood of a residual is averaged over all deviations of the noise up to ``sigma``. Let s be the squared
    residual, held below the 0.99 quantile q^2 sigma^2, and G the upper incomplete gamma function. With nu = ``dof``,
    a = 2^((nu - 1) / 2) / (0.99 2^(nu / 2) Gamma(nu / 2)) and z = s / (2 sigma^2),

        w = a / sigma (G((nu - 1) / 2, z) - G((nu - 1) / 2, q^2 / 2))
        rho = w at 0 - w,    or 1 / w with ``inverse``

    Outside the quantile rho is constant, yet the first derivative 1e-5, and so is the gradient: a small push. Both
    derivatives are constants for autograd; those of rho are these two, and no third.

    Args:
        squared: squared lengths of residuals, (N,).
        sigma: the largest deviation of the noise.
        dof: degrees of freedom of a residual, 3, 4 or 9.
        inverse: return 1 / w, which has no bound outside.

    Revisiting Rotation Averaging (Zhang et al., 2023), arXiv 2303.05195.

    Differs from the authors' code in: the incomplete gamma function itself, not a table of it.
    """
    wide = reals("magsac-loss", "squared", squared, (None,))
    sigma = check.number("magsac-loss", "sigma", sigma, 0.0, open_low=True)
    dof = check.choice("magsac-loss", "dof", dof, tuple(KNOWN))
    rho, first, second = _values(wide.detach(), sigma, dof, inverse)
    moved = wide - wide.detach()
    rho = rho + first * moved + second / 2 * moved.square()
    return rho.to(squared.dtype), first.to(squared.dtype), second.to(squared.dtype)


def _values(squared: Tensor, sigma: float, dof: int, inverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its derivatives."""
    c, q, end = KNOWN[dof]
    a, half = c * 2 ** ((dof - 1) / 2), (dof - 1) / 2
    outside = squared > (q * sigma) ** 2
    s = squared.clamp(0, (q * sigma) ** 2)
    z = s / (2 * sigma**2)
    w = a / sigma * (_upper(half, z) - end)
    slope = -a * z ** (half - 1) * (-z).exp() / (2 * sigma**3)
    bend = 2 * a * z ** (half - 1) * (1 / sigma**2 - (dof - 3) / s.clamp(min=1e-7)) * (-z).exp() / (8 * sigma**3)
    if inverse:
        w = w.clamp(min=torch.finfo(w.dtype).eps * a / sigma)  # rounding may take it to 0 and below
        rho, first, second = 1 / w, -slope / w.square(), 2 * slope.square() / w**3 - bend / w.square()
    else:
        rho, first, second = a / sigma * (math.gamma(half) - end) - w, -slope, -bend
    first = torch.where(outside | (first == 0), OUTSIDE, first)
    return rho, first, torch.where(outside, 0, second)


def _upper(half: float, z: Tensor) -> Tensor:
    """The upper incomplete gamma function."""
    return math.gamma(half) * torch.special.gammaincc(torch.full_like(z, half), z)
