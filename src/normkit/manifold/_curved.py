"""Spaces of any constant curvature K, seen stereographically, and the charts that lead there.

The ball of Poincaré and the sphere seen from its pole are one thing, with -K and its sign: the addition of Möbius is
that of ``_ball``, and what was a hyperbolic tangent becomes a tangent. In between lies the plain space, K = 0. Each
geometry is an isometry into it: then the same five lines serve all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normkit.manifold import _ball


def _length(x: Tensor, k: float) -> Tensor:
    return math.sqrt(abs(k)) * _ball.norm(x)


def exp0(v: Tensor, k: float) -> Tensor:
    """Return where twice a tangent vector at the origin leads to."""
    return _ball.ratio(torch.tanh if k < 0 else torch.tan, _length(v, k)) * v if k else v


def log0(y: Tensor, k: float) -> Tensor:
    """Return half the tangent vector at the origin that leads to a point."""
    return _ball.ratio(_ball.artanh if k < 0 else torch.atan, _length(y, k)) * y if k else y


def scale(factor: Tensor, x: Tensor, k: float) -> Tensor:
    """Return points at ``factor`` times their distances to the origin."""
    return exp0(factor * log0(x, k), k)


def squared_distance(x: Tensor, y: Tensor, k: float) -> Tensor:
    """Return the squared distances (...,) of points."""
    return 4 * log0(_ball.add(-x, y, -k), k).square().sum(-1)


def between(x: Tensor, y: Tensor, share: float | Tensor, k: float) -> Tensor:
    """Return the point at a share of the geodesic from x to y."""
    step = scale(torch.as_tensor(share, dtype=x.dtype, device=x.device), _ball.add(-x, y, -k), k)
    return _ball.add(x, step, -k)


class Geometry(NamedTuple):
    """A geometry: the sign of its curvature, the coordinates that it has more than dimensions, and its chart.

    ``unit``: the length of a tangent vector at the origin whose coordinates have a length of 1. ``off`` tells of what
    points are outside, or returns an empty string; ``to`` and ``back`` lead to the stereographic coordinates and from
    there.
    """

    sign: int
    further: int
    unit: int
    off: Callable[[Tensor, float], str]
    to: Callable[[Tensor, float], Tensor]
    back: Callable[[Tensor, float], Tensor]


def _out_of_ball(x: Tensor, k: float) -> str:
    furthest = _length(x, k).max().item()
    return f"lie in the ball, but a point has {furthest:.6g} times its radius" if not furthest <= _ball.MOST else ""


def _inside(x: Tensor, k: float) -> Tensor:
    """Points of the ball, which rounding may have taken out of it."""
    return torch.where(_length(x, k) < 1, x, _ball.project(x, -k))


def _off_sheet(x: Tensor, k: float) -> str:
    square = k * (x[..., 1:].square().sum(-1) - x[..., 0].square())
    off = ((square - 1).abs() / (1 - k * x.square().sum(-1))).max().item()
    if not off < 1e-2:
        return f"lie on the hyperboloid, but the square of a point is off by a share of {off:.3g}"
    return "" if (x[..., 0] > 0).all() else "lie on the upper sheet of the hyperboloid, but a point is on the lower"


def _off_sphere(x: Tensor, k: float) -> str:
    off = (_length(x, k) - 1).abs().max().item()
    if not off < 1e-2:
        return f"lie on the sphere, but the length of a point is off by a share of {off:.3g}"
    opposite = (x[..., 0] * math.sqrt(k)).min().item() < -1 + 1e-6
    return "be seen from the first axis, but a point is opposite to it" if opposite else ""


def _nowhere_off(x: Tensor, k: float) -> str:
    return ""


def _from_pole(x: Tensor, k: float) -> Tensor:
    """Points of the hyperboloid or the sphere, whose pole is at 1 / sqrt|K| on the first axis."""
    return x[..., 1:] / (1 + math.sqrt(abs(k)) * x[..., :1])


def _to_pole(y: Tensor, k: float) -> Tensor:
    square = k * y.square().sum(-1, keepdim=True)
    return torch.cat([(1 - square) / math.sqrt(abs(k)), 2 * y], -1) / (1 + square)


def _from_klein(x: Tensor, k: float) -> Tensor:
    x = _inside(x, k)
    return x / (1 + (1 + k * x.square().sum(-1, keepdim=True)).clamp(min=0).sqrt())


def _to_klein(y: Tensor, k: float) -> Tensor:
    return 2 * y / (1 - k * y.square().sum(-1, keepdim=True))


def _same(x: Tensor, k: float) -> Tensor:
    return x


GEOMETRIES = {
    "poincare": Geometry(-1, 0, 2, _out_of_ball, _inside, _same),
    "klein": Geometry(-1, 0, 1, _out_of_ball, _from_klein, _to_klein),
    "hyperboloid": Geometry(-1, 1, 1, _off_sheet, _from_pole, _to_pole),
    "sphere": Geometry(1, 1, 1, _off_sphere, _from_pole, _to_pole),
    "projected-sphere": Geometry(1, 0, 2, _nowhere_off, _same, _same),
    "euclidean": Geometry(0, 0, 1, _nowhere_off, lambda x, k: x / 2, lambda y, k: 2 * y),
}
