"""The loss of a variational autoencoder that is one chart of several."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import beside
from normkit.statistics import reals


@method(
    "chart-elbo",
    paper="Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv 2303.15244",
    shape="N C",
    over="C",
    inputs={"reconstruction": "N C", "latent": "N K", "log_det": "N"},
    example={"sigma_x": 0.5, "sigma_z": 0.5},
)
def chart_elbo(
    x: Tensor,
    reconstruction: Tensor,
    latent: Tensor,
    log_det: Tensor,
    *,
    sigma_x: float,
    sigma_z: float,
    low: float = 0.05,
    support: float = 0.2,
    slope: float = 100.0,
) -> Tensor:
    """Add the energy of a code, its reconstruction error and minus the log-determinant of the latent flow.

    For training autoencoders that each cover a part of a manifold, where one chart cannot: a sphere or a loop.
    ``chart-responsibility`` shares the points out among the charts, and ``chart-step`` moves on them. Data that one
    latent space covers need a single such bound, or a plain autoencoder.

    The negative evidence bound of one chart, point by point, whose prior is nearly uniform on a cube:

        energy(latent) + |x - reconstruction|^2 / (2 sigma_x^2) - log(sigma_z) - log_det

    ``nk.create("chart-elbo", ...).energy(latent)`` is the first term alone; see :func:`energy`.

    Args:
        x: points, (N, D).
        reconstruction: the decoder's, (N, D).
        latent: codes behind the latent flow, with their noise, (N, d).
        log_det: of that flow, (N,).
        sigma_x: deviation of the decoder.
        sigma_z: deviation of the noise on codes; its logarithm counts once, whatever d is.
        low: density at the border of the cube, relative to that inside.
        support: width of the border.
        slope: of the energy outside.

    Returns (N,). Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv
    2303.15244.
    """
    wide = reals("chart-elbo", "x", x, (None, None))
    back = reals("chart-elbo", "reconstruction", reconstruction, tuple(x.shape), x)
    code = reals("chart-elbo", "latent", latent, (len(x), None), x)
    volume = reals("chart-elbo", "log_det", log_det, (len(x),), x)
    sigma_x = check.number("chart-elbo", "sigma_x", sigma_x, 0.0, open_low=True)
    sigma_z = check.number("chart-elbo", "sigma_z", sigma_z, 0.0, open_low=True)
    error = ((wide - back) / sigma_x).square().sum(1) / 2
    bound = _energy(code, low, support, slope) + error - math.log(sigma_z) - volume
    return bound.to(x.dtype)


@beside(chart_elbo)
def energy(latent: Tensor, *, low: float = 0.05, support: float = 0.2, slope: float = 100.0) -> Tensor:
    """Return the energy (N,) of codes (N, d): 0 within the cube, logarithmic in its border, linear outside."""
    code = reals("chart-elbo", "latent", latent, (None, None))
    return _energy(code, low, support, slope).to(latent.dtype)


def _energy(z: Tensor, low: float, support: float, slope: float) -> Tensor:
    low = check.number("chart-elbo", "low", low, 0.0, 1.0, open_low=True)
    support = check.number("chart-elbo", "support", support, 0.0, open_low=True)
    slope = check.number("chart-elbo", "slope", slope)
    beyond = z.abs() - 1
    inner = -torch.log(low - (1 - low) / support * beyond.clamp(-support, 0))
    outer = slope * beyond - math.log(low)
    return torch.where(beyond <= -support, 0, torch.where(beyond < 0, inner, outer)).sum(1)
