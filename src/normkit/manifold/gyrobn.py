"""Batches of hyperbolic points moved to a learned mean, and scaled to a learned deviation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.manifold import _ball, _frechet
from normkit.manifold._points import readable
from normkit.norm import Norm
from normkit.running import Running, recomputing, track
from normkit.statistics import accurate

OUTSIDE = "these are no points of the ball"


@method(
    "gyrobn",
    paper="Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115",
    shape="N C : ball",
    over="N",
    exempt={
        "higher-derivatives": "the derivative of the Fréchet mean is right to the first order",
        "processes": "the Fréchet mean is iterated over the points of one process; join the batch before the call",
        "extremes ones": OUTSIDE,
        "extremes huge": OUTSIDE,
        "extremes offset": OUTSIDE,
    },
)
class GyroBN(Running, Norm):
    """Move a batch of points of the ball of Poincaré from its Fréchet mean to a learned point, and scale distances.

    For hyperbolic networks. As in BatchNorm, with the operations of the ball: with the addition + and the
    multiplication of Möbius, m the Fréchet mean and v the mean squared distance to it,

        y = exp_0(bias) + scale / sqrt(v + eps) ((-m) + x)

    The gradient flows through m, by the condition that defines it, and through v.

    Args:
        dim: size of the points.
        geometry: ``"poincare"``.
        curvature: K, negative; the ball has the radius 1 / sqrt(-K).
        momentum: how far the running mean goes along the geodesic to the batch's. The running variance is the plain
            average over all batches, as in the authors' code.
        eps: added to the variance.

    Input and output (N, dim), points of the ball; others are refused. State: ``bias`` (dim,), zeros, a tangent vector
    at the origin; ``scale`` (1,), one, the deviation wanted; ``running_mean`` (dim,) and ``running_var`` (1,), which
    the first batch sets; ``num_batches_tracked``.

    Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115. Other geometries than the
    ball of Poincaré are not there yet; ``gyrobn-grassmann`` is that of subspaces.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self, dim: int, *, geometry: str = "poincare", curvature: float = -1.0, momentum: float = 0.1, eps: float = 1e-6
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.geometry = check.choice(self, "geometry", geometry, ("poincare",))
        self.curvature = check.number(self, "curvature", curvature)
        if not -math.inf < curvature < 0:
            raise ValueError(f"GyroBN: curvature must be below 0 and finite, not {curvature}")
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.eps = check.eps(self, eps)
        self.bias = nn.Parameter(torch.zeros(dim))
        self.scale = nn.Parameter(torch.ones(1))
        self.keep(running_mean=torch.zeros(dim), running_var=torch.ones(1), batches=True)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training by its own statistics, which move the running ones."""
        check.features_last(self, x, self.dim)
        check.values(self, "x", x, (None, self.dim), x)
        c, points = -self.curvature, accurate(x)
        self._refuse(points, c)
        mean, var = self._statistics(points, c)
        factor = accurate(self.scale) / (var + self.eps).sqrt()
        moved = _ball.add(-mean, points, c)
        length = math.sqrt(c) * _ball.norm(moved)
        along = _ball.ratio(_ball.artanh, length)  # artanh(|x|) / |x|
        scaled = factor * along * _ball.ratio(torch.tanh, (factor * along * length).abs()) * moved
        return _ball.add(_ball.exp0(accurate(self.bias), c), scaled, c).to(x.dtype)

    def _statistics(self, points: Tensor, c: float) -> tuple[Tensor, Tensor]:
        """Mean and variance, of the batch or the running ones."""
        if not self.training:
            return accurate(self.running_mean), accurate(self.running_var)
        mean = _frechet.mean(points, c)
        var = _ball.distance(mean, points, c).square().mean().reshape(1)
        self._follow(mean.detach(), var.detach(), c)
        return mean, var

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor, c: float) -> None:
        if not recomputing():
            self.num_batches_tracked.add_(1)
        running = accurate(self.running_mean).to(mean.dtype)
        onwards = _ball.exp(running, self.momentum * _ball.log(running, mean, c), c)
        track(self.running_mean, torch.where(self.num_batches_tracked == 1, mean, onwards), 1.0)
        track(self.running_var, var, 1 / self.num_batches_tracked)

    def _refuse(self, points: Tensor, c: float) -> None:
        if self.training and not points.shape[0]:
            raise ValueError("GyroBN: x has no points, and so no mean")
        if readable(points) and points.numel():
            furthest = points.detach().norm(dim=-1).max().item() * math.sqrt(c)
            if furthest >= 1:
                raise ValueError(f"GyroBN: x must lie in the ball, but a point has {furthest:.6g} times its radius")
