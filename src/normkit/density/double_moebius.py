"""The double Moebius transform: a smooth map of rotations, written as unit quaternions."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals

SPHERE = "the input lies on the unit sphere"


@method(
    "double-moebius",
    paper="Rigid Body Flows for Sampling Molecular Crystal Structures (Köhler et al., 2023), arXiv 2301.11355",
    evidence="equations",
    shape="N C : sphere",
    inputs={"w": "N C : ball"},
    exempt={
        "extremes zeros": SPHERE,
        "extremes tiny float16": SPHERE,
        "extremes huge": SPHERE,
        "extremes offset": SPHERE,
        "log-det": "the determinant is of the map of the sphere, without the direction that leaves it",
    },
)
class DoubleMoebius(Transform):
    """Move points of the unit sphere towards a direction and its opposite alike.

    For densities of rotations: p and -p are one rotation, and the map of -p is minus that of p. For angles take
    ``circle-moebius``.

    With M the Moebius map, the other point at which the line through p and w meets the sphere, negated, and n
    coordinates,

        z = r / |r|,  r = M_w(x) + M_-w(x),    M_w(x) = 2 <x, d> d / <d, d> - x,  d = w - x
        log_det = log((1 - |w|^2) (1 + |w|^2)^(n-1)) - n/2 log((1 + |w|^2)^2 - 4 <w, x>^2)
        x = ((1 - |w|^2) z + 2 <z, w> w) / sqrt((1 - |w|^2)^2 + 4 <z, w>^2)

    ``forward(x, w)``: x (N, n) on the unit sphere, n = 4 for quaternions, and w (N, n) with |w| < 1, such as
    v / (1 + |v|). Returns ``z`` (N, n) and ``log_det`` (N,) of the map on the sphere; ``inverse(z, w)`` returns x.
    Neither puts its input onto the sphere.

    Rigid Body Flows for Sampling Molecular Crystal Structures (Köhler et al., 2023), arXiv 2301.11355.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, n), and the log-determinant of each sample."""
        p = reals(self, "x", x, (None, None))
        v = reals(self, "w", w, x.shape, x)
        both = _moebius(p, v) + _moebius(p, -v)
        z = both / both.norm(dim=1, keepdim=True)
        size, along = v.square().sum(1), (v * p).sum(1)
        grown = torch.log1p(-size) + (x.shape[1] - 1) * torch.log1p(size)
        log_det = grown - x.shape[1] / 2 * ((1 + size).square() - 4 * along.square()).log()
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor, w: Tensor) -> Tensor:
        """Return the point whose image is ``z``, in the plane of z and w."""
        p = reals(self, "z", z, (None, None))
        v = reals(self, "w", w, z.shape, z)
        shrunk, along = 1 - v.square().sum(1, keepdim=True), (p * v).sum(1, keepdim=True)
        x = (shrunk * p + 2 * along * v) / (shrunk.square() + 4 * along.square()).sqrt()
        return x.to(z.dtype)


def _moebius(p: Tensor, w: Tensor) -> Tensor:
    d = w - p
    return 2 * (p * d).sum(1, keepdim=True) / d.square().sum(1, keepdim=True) * d - p
