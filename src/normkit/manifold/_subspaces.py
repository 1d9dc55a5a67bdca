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

from normkit import check, ops
from normkit.manifold import _symmetric
from normkit.ops import derivatives

SMALL = 1e-3  # below it quotients are told by their series
LEAST_SQUARE = 1e-8  # of a cosine: what rounding in float64 turns such a vector by is below that of float32

Curve = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]  # a function of numbers, and its slope


class Rotation(NamedTuple):
    """A map by its three functions of numbers."""

    c: Curve
    s: Curve
    t: Curve


class Quotient(NamedTuple):
    """A map with c = r s - 1, s = 2 b / (r (b + M)) and t = s / r: an inverse takes the place of a decomposition."""

    r: float
    b: float


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
CAYLEY, HALF = Quotient(-1, 1), Quotient(2, 4)


def _functions(tangent: Tensor, by: Rotation | Quotient) -> list[Tensor]:
    """The matrices c, s and t of the square of tangent vectors."""
    square = tangent.mT @ tangent
    if isinstance(by, Quotient):
        eye = _symmetric.eye(square)
        s = 2 * by.b / by.r * torch.linalg.inv(square + by.b * eye)
        return [by.r * s - eye, s, s / by.r]
    of = _symmetric.spectrum(square)
    return [_symmetric.apply(of, *curve, relative=False) for curve in by]


def columns(tangent: Tensor, by: Rotation | Quotient) -> Tensor:
    """Return the first p columns of E: where the tangent vector leads to."""
    c, s, _ = _functions(tangent, by)
    return torch.cat([c, tangent @ s], -2)


def rotate(tangent: Tensor, points: Tensor, by: Rotation | Quotient) -> Tensor:
    """Return E applied to points (N, ..., n, p); the tangent vectors are those of all N."""
    c, s, t = _functions(tangent, by)
    upper = torch.cat([c, -s @ tangent.mT], -1)
    lower = torch.cat([tangent @ s, _symmetric.eye(tangent.mT) - tangent @ t @ tangent.mT], -1)
    return _apply(torch.cat([upper, lower], -2), points)


def _apply(matrix: Tensor, points: Tensor) -> Tensor:
    """Matrices (..., m, n) times points (..., n, p) or (N, ..., n, p), one product for all N."""
    if points.dim() == matrix.dim():
        return matrix @ points
    rows = points.mT.movedim(0, -3)
    return (rows.flatten(-3, -2) @ matrix.mT).unflatten(-2, rows.shape[-3:-1]).movedim(-3, 0).mT


def log0(points: Tensor) -> Tensor:
    """Return the tangent vectors (..., n - p, p) at the first p axes that lead to points, whatever their basis."""
    if _symmetric.at_once(points):
        return _Log.apply(points)
    p = points.shape[-1]
    upper = points[..., :p, :]
    still = upper.detach()
    left, cosines, right = _svd(still)
    f = angle_over_sine(cosines)
    moved = _turning(cosines, f, left.mT @ _symmetric.moved(upper) @ right.mT)
    return points[..., p:, :] @ (right.mT @ (torch.diag_embed(f) + moved) @ left.mT)


class _Log(torch.autograd.Function):
    """The same in one decomposition for both passes."""

    @staticmethod
    def forward(ctx, points: Tensor) -> Tensor:
        """Return the image."""
        p = points.shape[-1]
        left, cosines, right = _svd(points[..., :p, :])
        f, lower = angle_over_sine(cosines), points[..., p:, :] @ right.mT
        ctx.save_for_backward(points, left, cosines, right, f, lower)
        return (lower * f.unsqueeze(-2)) @ left.mT

    @staticmethod
    @derivatives.once_differentiable(_symmetric.REFUSAL)
    def backward(ctx, saved: tuple[Tensor, ...], sent: Tensor):
        """Return the gradient."""
        _, left, cosines, right, f, lower = saved
        turned = sent @ left
        upper = left @ _turning(cosines, f, lower.mT @ turned)
        return (torch.cat([upper, turned * f.unsqueeze(-2)], -2) @ right,)


def _turn(upper: Tensor) -> Tensor:
    """Return Q f(S) Rᵀ of matrices R S Qᵀ, with f(S) = arccos(S) / sqrt(1 - S^2), without a gradient."""
    left, cosines, right = _svd(upper)
    return (right.mT * angle_over_sine(cosines).unsqueeze(-2)) @ left.mT


def _turning(cosines: Tensor, f: Tensor, moved: Tensor) -> Tensor:
    """The derivative of what `_turned` returns, in the bases of the decomposition; it is its own transpose."""
    rows, others = cosines.unsqueeze(-1), cosines.unsqueeze(-2)
    gap = rows - others
    near = gap.abs() < torch.finfo(cosines.dtype).eps ** (1 / 3)
    slope = _angle_slope(cosines, f)
    differences = (f.unsqueeze(-1) - f.unsqueeze(-2)) / torch.where(near, 1, gap)
    even = torch.where(near, (slope.unsqueeze(-1) + slope.unsqueeze(-2)) / 2, differences)
    odd = (f.unsqueeze(-1) + f.unsqueeze(-2)) / (rows + others).clamp(min=torch.finfo(cosines.dtype).tiny)
    return ((even - odd) * moved + (even + odd) * moved.mT) / 2


def _svd(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular vectors and cosines of matrices, in any order.

    In float32 by the squares in float64, but of matrices with one so small that a digit of float32 would be lost.
    """
    if a.dtype is not torch.float32 or not a.is_cpu or not check.readable(a) or not a.numel():
        left, cosines, right = torch.linalg.svd(a)
        return left, cosines.clamp(max=1), right
    wide = a.double()
    squares, vectors = ops.eigh(wide.mT @ wide)
    cosines = squares.clamp(min=LEAST_SQUARE).sqrt()
    left = wide @ (vectors / cosines.unsqueeze(-2))
    factors = [left.to(a.dtype), cosines.to(a.dtype), vectors.mT.to(a.dtype, copy=True)]
    small = squares[..., 0] <= LEAST_SQUARE
    if small.any():
        for part, exact in zip(factors, torch.linalg.svd(a[small]), strict=True):
            part[small] = exact
    return factors[0], factors[1].clamp(max=1), factors[2]


def angle_over_sine(cosine: Tensor) -> Tensor:
    """Return the angle over its sine, by the series where the sine is small."""
    small = 1 - cosine < SMALL
    x, t = torch.where(small, 0, cosine), 1 - cosine
    series = 1 + t / 3 * (1 + 2 * t / 5 * (1 + 3 * t / 7 * (1 + 4 * t / 9)))
    return torch.where(small, series, x.arccos() / (1 - x.square()).sqrt())


def _angle_slope(cosine: Tensor, f: Tensor) -> Tensor:
    """The derivative of `angle_over_sine`, whose value is f."""
    t = 1 - cosine
    series = -(1 + 4 * t / 5 * (1 + 9 * t / 14 * (1 + 16 * t / 27))) / 3
    small = t < SMALL
    return torch.where(small, series, (cosine * f - 1) / torch.where(small, 1, 1 - cosine.square()))


def log(base: Tensor, points: Tensor) -> Tensor:
    """Return the tangent vectors (..., n, p) at ``base`` that lead to points."""
    return _beside(base, points @ _turn(_apply(base.mT, points)))


def mean_log(base: Tensor, points: Tensor) -> Tensor:
    """Return the mean of the tangent vectors that lead to points (N, ..., n, p)."""
    turned = _turn(_apply(base.mT, points))
    return _beside(base, torch.einsum("n...ij,n...jk->...ik", points, turned) / len(points))


def _beside(base: Tensor, x: Tensor) -> Tensor:
    """What of x is no part of the subspace."""
    return x - base @ (base.mT @ x)


def squared_distances(base: Tensor, points: Tensor) -> Tensor:
    """Return the squared distances of points from ``base``: the sums of the squares of the principal angles."""
    along = _apply(base.mT, points)
    across = points - _apply(base, along)
    wide = along.to(torch.promote_types(points.dtype, torch.float32 if points.device.type == "mps" else torch.float64))
    rest = _beyond_sine(ops.eigvalsh(wide.mT @ wide).clamp(0, 1)).sum(-1)
    return across.square().sum((-2, -1)) + rest.to(points.dtype)


def _beyond_sine(square: Tensor) -> Tensor:
    """Return a^2 - sin(a)^2 of angles by the squares of their cosines."""
    m = 1 - square
    small = m < SMALL
    series = m * m / 3 * (1 + 8 * m / 15 * (1 + 9 * m / 14 * (1 + 32 * m / 45)))
    return torch.where(small, series, torch.where(small, 0, square).sqrt().arccos().square() - m)


def exp(base: Tensor, tangent: Tensor) -> Tensor:
    """Return where a tangent vector at ``base`` leads to, made orthonormal anew."""
    q, r = torch.linalg.qr(onwards(base, tangent))
    return q * r.diagonal(0, -2, -1).sign().unsqueeze(-2)


def onwards(base: Tensor, tangent: Tensor) -> Tensor:
    """Return where a tangent vector at ``base`` leads to."""
    c, s, _ = _functions(tangent, EXPM)
    return base @ c + tangent @ s


def between(start: Tensor, end: Tensor, share: float) -> Tensor:
    """Return the point at a share of the geodesic from one subspace to another."""
    start = start.to(end.dtype)
    return onwards(start, share * log(start, end))
