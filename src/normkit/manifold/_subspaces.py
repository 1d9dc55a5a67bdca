"""Subspaces as orthonormal columns: maps from tangent vectors to rotations, logarithms, and means.

A tangent vector at the first p coordinate axes is a matrix B (n - p, p), and ``W = [[0, -Bᵀ], [B, 0]]``. A map E turns
it into the rotation ``[[c(M), -s(M) Bᵀ], [B s(M), I - B t(M) Bᵀ]]`` with ``M = BᵀB`` and three functions of numbers, so
that matrices of p by p alone are decomposed, and derivatives are right where principal angles are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import ops
from normkit.manifold import _symmetric
from normkit.manifold._points import readable

SMALL = 1e-3  # below it quotients are told by their series
LEAST_SQUARE = 1e-8  # of a cosine: what rounding in float64 turns such a vector by is below that of float32

Curve = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]  # a function of numbers, and its slope


class Rotation(NamedTuple):
    """The three functions of a map."""

    c: Curve
    s: Curve
    t: Curve


def _sinc(m: Tensor) -> Tensor:
    """sin(a) / a with a^2 = m."""
    small = m < SMALL
    a = torch.where(small, 1, m).sqrt()
    return torch.where(small, 1 - m / 6 * (1 - m / 20 * (1 - m / 42)), a.sin() / a)


def _sinc_slope(m: Tensor) -> Tensor:
    small = m < SMALL
    safe = torch.where(small, 1, m)
    series = -(1 - m / 10 * (1 - m / 28 * (1 - m / 54))) / 6
    return torch.where(small, series, (safe.sqrt().cos() - _sinc(safe)) / (2 * safe))


EXPM = Rotation(
    (lambda m: m.clamp(min=0).sqrt().cos(), lambda m: -_sinc(m) / 2),
    (_sinc, _sinc_slope),
    (lambda m: _sinc(m / 4).square() / 2, lambda m: _sinc(m / 4) * _sinc_slope(m / 4) / 4),
)
CAYLEY = Rotation(
    (lambda m: (1 - m) / (1 + m), lambda m: -2 / (1 + m).square()),
    (lambda m: -2 / (1 + m), lambda m: 2 / (1 + m).square()),
    (lambda m: 2 / (1 + m), lambda m: -2 / (1 + m).square()),
)
HALF = Rotation(
    (lambda m: (4 - m) / (4 + m), lambda m: -8 / (4 + m).square()),
    (lambda m: 4 / (4 + m), lambda m: -4 / (4 + m).square()),
    (lambda m: 2 / (4 + m), lambda m: -2 / (4 + m).square()),
)


def _square(tangent: Tensor) -> _symmetric.Spectrum:
    return _symmetric.spectrum(_symmetric.symmetric(tangent.mT @ tangent))


def columns(tangent: Tensor, by: Rotation) -> Tensor:
    """Return the first p columns of E: where the tangent vector leads to."""
    of = _square(tangent)
    c, s = (_symmetric.apply(of, *curve, relative=False) for curve in by[:2])
    return torch.cat([c, tangent @ s], -2)


def rotated(tangent: Tensor, points: Tensor, by: Rotation) -> Tensor:
    """Return E applied to points (..., n, p)."""
    of = _square(tangent)
    c, s, t = (_symmetric.apply(of, *curve, relative=False) for curve in by)
    eye = torch.eye(tangent.shape[-2], dtype=tangent.dtype, device=tangent.device)
    upper = torch.cat([c, -s @ tangent.mT], -1)
    return torch.cat([upper, torch.cat([tangent @ s, eye - tangent @ t @ tangent.mT], -1)], -2) @ points


def log0(points: Tensor) -> Tensor:
    """Return the tangent vectors (..., n - p, p) at the first p axes that lead to points, whatever their basis."""
    p = points.shape[-1]
    return points[..., p:, :] @ _turned(points[..., :p, :])


def _turned(upper: Tensor) -> Tensor:
    """Return Q f(S) Rᵀ of matrices R S Qᵀ, with f(S) = arccos(S) / sqrt(1 - S^2), and its derivative."""
    still = upper.detach()
    left, cosines, right = _svd(still)
    f = angle_over_sine(cosines)
    if _symmetric.constant(upper):
        return (right.mT * f.unsqueeze(-2)) @ left.mT
    rows, others = cosines.unsqueeze(-1), cosines.unsqueeze(-2)
    gap = rows - others
    near = gap.abs() < torch.finfo(cosines.dtype).eps ** (1 / 3)
    slope = _angle_slope(cosines)
    differences = (f.unsqueeze(-1) - f.unsqueeze(-2)) / torch.where(near, 1, gap)
    even = torch.where(near, (slope.unsqueeze(-1) + slope.unsqueeze(-2)) / 2, differences)
    odd = (f.unsqueeze(-1) + f.unsqueeze(-2)) / (rows + others).clamp(min=torch.finfo(cosines.dtype).tiny)
    moved = left.mT @ (upper - still) @ right.mT
    inner = torch.diag_embed(f) + even * (moved + moved.mT) / 2 + odd * (moved.mT - moved) / 2
    return right.mT @ inner @ left.mT


def _svd(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular vectors and cosines of matrices, in any order.

    In float32 by the squares in float64, but of matrices with one so small that a digit of float32 would be lost.
    """
    if a.dtype is not torch.float32 or not a.is_cpu or not readable(a) or not a.numel():
        left, cosines, right = torch.linalg.svd(a)
        return left, cosines.clamp(max=1), right
    wide = a.double()
    squares, vectors = ops.eigh(wide.mT @ wide)
    cosines = squares.clamp(min=LEAST_SQUARE).sqrt()
    left = wide @ (vectors / cosines.unsqueeze(-2))
    found = [left.to(a.dtype), cosines.to(a.dtype), vectors.mT.to(a.dtype, copy=True)]
    small = squares[..., 0] <= LEAST_SQUARE
    if small.any():
        for part, exact in zip(found, torch.linalg.svd(a[small]), strict=True):
            part[small] = exact
    return found[0], found[1].clamp(max=1), found[2]


def angle_over_sine(cosine: Tensor) -> Tensor:
    """Return the angle over its sine, by the series where the sine is small."""
    small = 1 - cosine < SMALL
    x, t = torch.where(small, 0, cosine), 1 - cosine
    series = 1 + t / 3 * (1 + 2 * t / 5 * (1 + 3 * t / 7 * (1 + 4 * t / 9)))
    return torch.where(small, series, x.arccos() / (1 - x.square()).sqrt())


def _angle_slope(cosine: Tensor) -> Tensor:
    small = 1 - cosine < SMALL
    x, t = torch.where(small, 0, cosine), 1 - cosine
    series = -(1 + 4 * t / 5 * (1 + 9 * t / 14 * (1 + 16 * t / 27))) / 3
    return torch.where(small, series, (x * angle_over_sine(x) - 1) / (1 - x.square()))


@torch.no_grad()
def log(base: Tensor, points: Tensor) -> Tensor:
    """Return the tangent vectors (..., n, p) at ``base`` that lead to points."""
    along = base.mT @ points
    return (points - base @ along) @ _turned(along)


@torch.no_grad()
def squared_distances(base: Tensor, points: Tensor) -> Tensor:
    """Return the squared distances of points from ``base``: the sums of the squares of the principal angles."""
    exact = torch.promote_types(points.dtype, torch.float32 if points.device.type == "mps" else torch.float64)
    base, wide = base.to(exact), points.to(exact)
    along = base.mT @ wide
    across = wide - base @ along
    sines, cosines = (ops.eigvalsh(part.mT @ part).clamp(min=0).sqrt() for part in (across, along))
    return torch.atan2(sines, cosines.flip(-1)).square().sum(-1).to(points.dtype)


@torch.no_grad()
def exp(base: Tensor, tangent: Tensor) -> Tensor:
    """Return where a tangent vector at ``base`` leads to, made orthonormal anew."""
    q, r = torch.linalg.qr(onwards(base, tangent))
    return q * r.diagonal(0, -2, -1).sign().unsqueeze(-2)


@torch.no_grad()
def onwards(base: Tensor, tangent: Tensor) -> Tensor:
    """Return where a tangent vector at ``base`` leads to."""
    of = _square(tangent)
    c, s = (_symmetric.apply(of, *curve, relative=False) for curve in EXPM[:2])
    return base @ c + tangent @ s
