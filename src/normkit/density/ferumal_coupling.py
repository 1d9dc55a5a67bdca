"""Ferumal coupling: scale and shift by kernels about learned points, in the place of a network."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals, root

KERNELS = ("squared-exponential", "matern32", "matern52")


@method(
    "ferumal-coupling",
    paper="Kernelised Normalising Flows (English et al., 2023), arXiv 2307.14839",
    evidence="equations",
    shape="N C",
    example={"num_points": 4},
    provenance="the paper's equations; no code of the authors was to be had",
)
class FerumalCoupling(Transform):
    """Scale and shift half of the coordinates by functions of the other half, each a sum of kernels.

    For few data: it does with far fewer parameters than a coupling with a network. With x = [a | b], K the kernel
    between a and M learned points, s = K scale_weight and t = K shift_weight,

        z = [a | b exp(s) + t],    log_det = sum s

    The kernels, with r the distance over exp(log_length_scale): exp(-r^2 / 2); (1 + u) exp(-u), u = sqrt(3) r;
    (1 + u + u^2 / 3) exp(-u), u = sqrt(5) r.

    Args:
        dim: D; the first D // 2 coordinates are a.
        num_points: M.
        kernel: ``"squared-exponential"``, ``"matern32"`` or ``"matern52"``.

    ``forward(x)``, (N, D), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x. Starts at the identity;
    permute the coordinates between couplings. Weight decay on both weights takes the place of the function's norm.

    Kernelised Normalising Flows (English et al., 2023), arXiv 2307.14839.
    """

    def __init__(self, dim: int, *, num_points: int, kernel: str = "squared-exponential"):
        super().__init__()
        self.dim = check.size(self, "dim", dim, least=2)
        self.num_points = check.size(self, "num_points", num_points)
        self.kernel = check.choice(self, "kernel", kernel, KERNELS)
        known = dim // 2
        self.points = nn.Parameter(torch.randn(num_points, known))
        self.scale_weight = nn.Parameter(torch.zeros(num_points, dim - known))
        self.shift_weight = nn.Parameter(torch.zeros(num_points, dim - known))
        self.log_length_scale = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, D), and the log-determinant of each sample."""
        a, b = self._halves("x", x)
        scale, shift = self._affine(a)
        return torch.cat([a, b * scale.exp() + shift], 1).to(x.dtype), scale.sum(1).to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what ``z`` (N, D) is the image of."""
        a, b = self._halves("z", z)
        scale, shift = self._affine(a)
        return torch.cat([a, (b - shift) * (-scale).exp()], 1).to(z.dtype)

    def _halves(self, name: str, x: Tensor) -> tuple[Tensor, ...]:
        known = self.dim // 2
        return reals(self, name, x, (None, self.dim)).split([known, self.dim - known], 1)

    def _affine(self, a: Tensor) -> list[Tensor]:
        apart = (a.unsqueeze(1) - self.points.to(a.dtype)) * (-self.log_length_scale.to(a.dtype)).exp()
        kernel = self._near(apart.square().sum(-1))
        return [kernel @ weight.to(a.dtype) for weight in (self.scale_weight, self.shift_weight)]

    def _near(self, square: Tensor) -> Tensor:
        if self.kernel == "squared-exponential":
            return (-square / 2).exp()
        u = root(square) * math.sqrt(3 if self.kernel == "matern32" else 5)
        return (1 + u + (u.square() / 3 if self.kernel == "matern52" else 0)) * (-u).exp()
