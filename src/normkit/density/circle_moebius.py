"""The Moebius transform of the circle, number by number."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals


@method(
    "circle-moebius",
    paper="Smooth Normalizing Flows (Köhler et al., 2021), arXiv 2110.00351",
    shape="N C : unit",
    inputs={"w": "N C 2 : ball"},
)
class CircleMoebius(Transform):
    """Crowd angles about a point of the circle, smoothly.

    For torsion angles, whose density must have no seam. For rotations, points of a sphere, take ``double-moebius``;
    where forces are needed, ``smooth-mixture``.

    An angle is a number of [0, 1), p = (cos, sin)((2x - 1) pi) and |w| < 1,

        q = (1 - |w|^2) / |p - w|^2 (p - w) - w,    log_det = log((1 - |w|^2) / |p - w|^2)

    and z is the angle of q over 2 pi, turned so that 0 stays where it is.

    ``forward(x, w)``: x of any shape S, w S + (2,), such as v / (1 + |v|). Returns ``z`` and ``log_det``, number by
    number; ``inverse(z, w)`` returns x.

    Smooth Normalizing Flows (Köhler et al., 2021), arXiv 2110.00351.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of each number, and the logarithm of the slope."""
        wide, v = reals(self, "x", x, x.shape if isinstance(x, Tensor) else ()), self._point(w, x)
        p = _on_circle((2 * wide.remainder(1) - 1) * math.pi)
        q, slope = _moebius(p, v)
        zero = _moebius(_on_circle(torch.full_like(wide, -math.pi)), v)[0]
        return (_angle(q, zero) / (2 * math.pi)).remainder(1).to(x.dtype), slope.to(x.dtype)

    def inverse(self, z: Tensor, w: Tensor) -> Tensor:
        """Return the number whose image is ``z``."""
        wide, v = reals(self, "z", z, z.shape if isinstance(z, Tensor) else ()), self._point(w, z)
        zero = _moebius(_on_circle(torch.full_like(wide, -math.pi)), v)[0]
        turn = _on_circle(2 * math.pi * wide)
        q = torch.stack([_dot(turn, zero * zero.new_tensor([1, -1])), _cross(turn, zero)], -1)
        p = _moebius(q, -v)[0]
        return (torch.atan2(p[..., 1], p[..., 0]) / (2 * math.pi) + 0.5).remainder(1).to(z.dtype)

    def _point(self, w: Tensor, x: Tensor) -> Tensor:
        return reals(self, "w", w, (*x.shape, 2), x)


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """The imaginary part of a b."""
    return a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]


def _moebius(p: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The image of a point of the circle, and the logarithm of the slope."""
    apart = p - w
    slope = (1 - w.square().sum(-1)) / apart.square().sum(-1)
    return slope.unsqueeze(-1) * apart - w, slope.log()


def _angle(q: Tensor, start: Tensor) -> Tensor:
    """The angle from ``start`` to q; exactly 0 where they are the same."""
    return torch.atan2(q[..., 1] * start[..., 0] - q[..., 0] * start[..., 1], _dot(q, start))
