"""Batches of subspaces moved to a learned one, and their distances to it scaled."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.manifold import _subspaces
from normkit.norm import Norm
from normkit.running import Running, track
from normkit.statistics import accurate, full_precision

MODES: dict[str, _subspaces.Rotation | _subspaces.Quotient] = {
    "cayley": _subspaces.CAYLEY,
    "expm": _subspaces.EXPM,
    "cayley-half": _subspaces.HALF,
}
CONSTANT = "batch statistics are constants for the gradient"
AWAY = "the authors' map, the default, goes the other way at twice the speed; exp_mode='expm' keeps it"


@method(
    "gyrobn-grassmann",
    paper="Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115",
    shape="N channels C p : frame",
    over="N",
    example={"p": 3, "channels": 2},
    exempt={
        "gradcheck train": CONSTANT,
        "higher-derivatives": "derivatives of functions of matrices are right to the first order",
        "processes": "the mean begins at the first sample of one process; join the batch before the call",
        "extremes": "these are no orthonormal columns",
        "centered": AWAY,
        "spread": AWAY,
    },
)
class GyroBNGrassmann(Running, Norm):
    """Move a batch of subspaces from its mean to a learned one, and scale distances.

    For networks on subspaces, such as those that frames of a video span. For hyperbolic space or the sphere take
    ``gyrobn``.

    A subspace is given by p orthonormal columns. With m the mean, v the mean squared distance to it, and E the map from
    a tangent vector B at the first p axes to a rotation,

        c = E(-log m) x,    y = E(bias) E(scale / sqrt(v + eps) log c)[:, :p]

    Mean and variance are constants for the gradient, which is right where principal angles are equal.

    Args:
        n: size of the columns.
        p: how many columns.
        channels: subspaces of a sample, each with statistics and parameters of its own.
        exp_mode: E; with W = [[0, -Bᵀ], [B, 0]], ``"cayley"``: (I - W) (I + W)^-1, as in the authors' code, which goes
            the other way at twice the speed, so that the batch is not centered; ``"expm"``: exp(W), which centers it;
            ``"cayley-half"``: (I - W/2)^-1 (I + W/2), near to that.
        momentum: how far running estimates go to the batch's, the mean along the geodesic.
        karcher_steps: to the mean, from the first sample.
        eps: added to the variance.

    Input and output (N, channels, n, p). State: ``bias`` (channels, n - p, p), zeros; ``scale`` (channels,), ones;
    ``running_mean`` (channels, n, p), the first p axes; ``running_var`` (channels,), ones. Another basis of the
    subspaces gives the same result, and but for the first sample's the same running mean.

    Riemannian Batch Normalization: A Gyro Approach (Chen et al., 2025), arXiv 2509.07115.

    Differs from the authors' code in: points within a distance of 0.006 of the first axes keep their logarithm, which
    is 0 there.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        n: int,
        *,
        p: int,
        channels: int = 1,
        exp_mode: str = "cayley",
        momentum: float = 0.1,
        karcher_steps: int = 1,
        eps: float = 1e-5,
    ):
        super().__init__()
        self.n = check.size(self, "n", n, least=2)
        self.p = check.size(self, "p", p, most=n - 1)
        self.channels = check.size(self, "channels", channels)
        self.exp_mode = check.choice(self, "exp_mode", exp_mode, tuple(MODES))
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.karcher_steps = check.size(self, "karcher_steps", karcher_steps, least=0, most=1000)
        self.eps = check.eps(self, eps)
        self.bias = nn.Parameter(torch.zeros(channels, n - p, p))
        self.scale = nn.Parameter(torch.ones(channels))
        self.keep(running_mean=torch.eye(n, p).repeat(channels, 1, 1), running_var=torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training by its own statistics, which move the running ones."""
        check.floating(self, x)
        check.values(self, "x", x, (None, self.channels, self.n, self.p), x)
        points, by = accurate(x), MODES[self.exp_mode]
        self._refuse(points)
        with full_precision(x):
            mean, var = self._statistics(points.detach())
            centered = _subspaces.rotate(-_subspaces.log0(mean), points, by)
            factor = (accurate(self.scale) / (var + self.eps).sqrt()).to(points.dtype).unsqueeze(-1).unsqueeze(-1)
            scaled = _subspaces.columns(factor * _subspaces.log0(centered), by)
            return _subspaces.rotate(accurate(self.bias).to(points.dtype), scaled, by).to(x.dtype)

    def _statistics(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, of the batch or the running ones."""
        if not self.training:
            return accurate(self.running_mean).to(points.dtype), accurate(self.running_var)
        mean = points[0]
        for _ in range(self.karcher_steps):
            mean = _subspaces.exp(mean, _subspaces.mean_log(mean, points))
        var = _subspaces.squared_distances(mean, points).mean(0)
        track(self.running_mean, mean, self.momentum, _subspaces.between)
        track(self.running_var, var, self.momentum)
        return mean, var

    def _refuse(self, points: Tensor) -> None:
        if self.training and not points.shape[0]:
            raise ValueError("GyroBNGrassmann: x has no points, and so no mean")
        if check.readable(points) and points.numel():
            still = points.detach()
            with full_precision(still):
                products = still.mT @ still
            off = (products - torch.eye(self.p, dtype=still.dtype, device=still.device)).abs().max().item()
            if not off < 0.05:  # columns in bfloat16 are off by less
                raise ValueError(
                    f"GyroBNGrassmann: x must have orthonormal columns, but products of some are {off:.3g} off"
                )
