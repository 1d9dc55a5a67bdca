"""Batches of points of a curved space moved to a learned mean, and scaled to a learned deviation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.manifold import _ball, _curved, _frechet
from normkit.norm import Norm
from normkit.running import Running, recomputing, track
from normkit.statistics import accurate


@method(
    "gyrobn",
    paper="Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115",
    shape="N C : ball",
    over="N",
    exempt={
        "higher-derivatives": "the derivative of the Fréchet mean is right to the first order",
        "processes": "the Fréchet mean is iterated over the points of one process; join the batch before the call",
        "extremes ones": _ball.OUTSIDE,
        "extremes huge": _ball.OUTSIDE,
        "extremes offset": _ball.OUTSIDE,
    },
)
class GyroBN(Running, Norm):
    """Move a batch of points of a curved space from its Fréchet mean to a learned point, and scale distances.

    For networks on hyperbolic space or the sphere. For covariance matrices take ``liebn`` or ``riemannian-batchnorm``.

    As in BatchNorm, with the operations of the space, of which the ball of Poincaré is the usual picture: with the
    addition + and the multiplication of Möbius, m the Fréchet mean and v the mean squared distance to it,

        y = exp_0(bias) + scale / sqrt(v + eps) ((-m) + x)

    The gradient flows through m, by the condition that defines it, and through v.

    Args:
        dim: of the space.
        geometry: ``"poincare"``, ``"klein"`` (the ball of Beltrami and Klein) or ``"hyperboloid"``, hyperbolic space
            thrice; ``"sphere"`` and ``"projected-sphere"``, seen from its pole; ``"euclidean"``.
        curvature: K, below 0 in hyperbolic space and above on the sphere; None: -1 and 1.
        momentum: how far the running mean goes along the geodesic to the batch's. The running variance is the plain
            average over all batches, as in the authors' code.
        eps: added to the variance.

    Input and output (N, dim), (N, dim + 1) of the hyperboloid and the sphere, whose origin is 1 / sqrt|K| on the first
    axis; what is no point of the space is refused. Points of the sphere are to lie within a half of it. State: ``bias``
    (dim,), zeros, a tangent vector at the origin; ``scale`` (1,), one, the deviation wanted; ``running_mean``, a point,
    and ``running_var`` (1,), which the first batch sets; ``num_batches_tracked``.

    Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115. ``gyrobn-grassmann`` is that
    of subspaces, and ``liebn`` with ``metric="LEM"`` has the form of that of correlations.

    Differs from the authors' code in: other geometries than the ball of Poincaré follow the equations, as theirs of the
    hyperboloid does not run.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        dim: int,
        *,
        geometry: str = "poincare",
        curvature: float | None = None,
        momentum: float = 0.1,
        eps: float = 1e-6,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.geometry = check.choice(self, "geometry", geometry, tuple(_curved.GEOMETRIES))
        sign = self._space.sign
        self.curvature = float(sign) if curvature is None else check.number(self, "curvature", curvature)
        if not math.isfinite(self.curvature) or (self.curvature > 0) - (self.curvature < 0) != sign:
            side = {-1: "below 0", 0: "0", 1: "above 0"}[sign]
            raise ValueError(f"GyroBN: curvature must be {side} and finite for {geometry!r}, not {curvature}")
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.eps = check.eps(self, eps)
        self.bias = nn.Parameter(torch.zeros(dim))
        self.scale = nn.Parameter(torch.ones(1))
        origin = self._space.back(torch.zeros(dim), self.curvature)
        self.keep(running_mean=origin, running_var=torch.ones(1), batches=True)

    @property
    def _space(self) -> _curved.Geometry:
        return _curved.GEOMETRIES[self.geometry]

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training by its own statistics, which move the running ones."""
        width = self.dim + self._space.further
        check.features_last(self, x, width)
        check.values(self, "x", x, (None, width), x)
        k, wide = self.curvature, accurate(x)
        self._refuse(wide)
        points = self._space.to(wide, k)
        mean, var = self._statistics(points)
        factor = accurate(self.scale) / (var + self.eps).sqrt()
        scaled = _curved.scale(factor, _ball.add(-mean, points, -k), k)
        bias = _curved.exp0(accurate(self.bias) * (self._space.unit / 2), k)
        return self._space.back(_ball.add(bias, scaled, -k), k).to(x.dtype)

    def _statistics(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, of the batch or the running ones."""
        k = self.curvature
        if not self.training:
            return self._space.to(accurate(self.running_mean), k), accurate(self.running_var)
        mean = _frechet.mean(points, -k)
        var = _curved.squared_distance(mean, points, k).mean().reshape(1)
        self._follow(mean.detach(), var.detach())
        return mean, var

    def _follow(self, mean: Tensor, var: Tensor) -> None:
        if not recomputing():
            self.num_batches_tracked.add_(1)
        k, first = self.curvature, (self.num_batches_tracked == 1).to(mean.dtype)

        def path(running: Tensor, mean: Tensor, rate: float | Tensor) -> Tensor:
            between = _curved.between(self._space.to(running.to(mean.dtype), k), mean, rate, k)
            return self._space.back(torch.where(first > 0, mean, between), k)

        track(self.running_mean, mean, first + (1 - first) * self.momentum, path)
        track(self.running_var, var, 1 / self.num_batches_tracked.to(var.dtype))

    def _refuse(self, points: Tensor) -> None:
        if self.training and not points.shape[0]:
            raise ValueError("GyroBN: x has no points, and so no mean")
        if check.readable(points) and points.numel():
            off = self._space.off(points.detach(), self.curvature)
            if off:
                raise ValueError(f"GyroBN: x must {off}")
