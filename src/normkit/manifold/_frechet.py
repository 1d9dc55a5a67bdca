"""The Fréchet mean of points of a space of constant curvature, seen stereographically, and its derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.manifold import _symmetric
from normkit.statistics import full_precision

STEPS = 1000
SMALL = 1e-4  # below it quotients are told by their series


def mean(points: Tensor, c: float) -> Tensor:
    """Return the point (D,) with the least sum of squared distances to points (N, D) of the space of curvature -c.

    Of the ball of Poincaré where c > 0, of the sphere, where points are to lie within a half of it, where c < 0.
    Iterated until it moves in the space by less than 1e-12 (1e-6 in float32), 1000 times at most. The derivative is
    that of the condition that defines it, and to the first order.
    """
    with full_precision(points):
        center = _iterate(points.detach(), c)
        slope, bend = _derivatives(points, center, c)
        step = torch.linalg.solve(bend.detach(), _symmetric.moved(slope))
    return center - step


@torch.library.custom_op("normkit::poincare_mean", mutates_args=())
def _iterate(points: Tensor, c: float) -> Tensor:
    if not len(points):
        return points.new_zeros(points.shape[1])
    least, rounding = 1e-12 if points.dtype == torch.float64 else 1e-6, torch.finfo(points.dtype).eps
    squares = points.square().sum(1)
    center = _minimum(points, squares, torch.ones_like(squares), c)  # from a far point no step would be seen
    for _ in range(STEPS):
        before, center = center, _move(points, squares, center, c)
        far, change = before.norm(), (center - before).norm()
        # near the border of the ball a short step is a long way
        if change < far.clamp(min=1) * (least * (1 - c * far.square())).clamp(min=rounding):
            break
    return center


@_iterate.register_fake
def _(points, c):
    return points.new_empty(points.shape[1])


def _move(points: Tensor, squares: Tensor, center: Tensor, c: float) -> Tensor:
    """One step: the minimum of a bound of the sum."""
    y = c * (points - center).square().sum(1) / ((1 - c * squares) * (1 - c * center.square().sum()))
    return _minimum(points, squares, _quotient(y), c)


def _minimum(points: Tensor, squares: Tensor, quotient: Tensor, c: float) -> Tensor:
    weight = quotient / (1 - c * squares)
    a, b, d = weight.sum(), weight @ points, weight @ squares
    whole = a + c * d
    under = whole.square() - 4 * c * b.square().sum()
    if c > 0:  # at the edge of the ball that cancels; a sum of vectors of these lengths is no shorter than their sum
        under = torch.maximum(under, quotient.sum().square())
    # the smaller root, by the form that does not cancel
    return 2 * b / (whole + under.sqrt()).clamp(min=torch.finfo(b.dtype).tiny)


def _quotient(y: Tensor) -> Tensor:
    """2 arcosh(1 + 2 y) / sqrt(y^2 + y), and what it goes on as below 0."""
    whole, _ = _arc(y)
    return torch.where(y.abs() < SMALL, 4 * (1 - y * (2 / 3 - y * (8 / 15 - y * 16 / 35))), whole)


def _arc(y: Tensor) -> tuple[Tensor, Tensor]:
    """The quotient of numbers that are not near to 0, and y^2 + y; no further below 0 than a half of the sphere."""
    above = torch.where(y > 0, y, 1)
    below = torch.where(y < 0, -y, 0.25).clamp(max=1 - 1e-12)
    both = torch.where(y > 0, above * (1 + above), below * (below - 1))
    arc = torch.where(y > 0, above.sqrt().asinh(), below.sqrt().asin())
    both = torch.where(y.abs() < SMALL, 1, both)
    return 4 * arc / both.abs().sqrt(), both


def _quotient_slope(y: Tensor) -> Tensor:
    quotient, both = _arc(y)
    whole = (2 - quotient * (2 * y + 1) / 2) / both
    return torch.where(y.abs() < SMALL, 4 * (-2 / 3 + y * (16 / 15 - y * 48 / 35)), whole)


def _derivatives(points: Tensor, center: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """The gradient (D,) of the sum of squared distances with respect to the center, and the matrix of its slopes."""
    gap, square = center - points, (center - points).square().sum(1, keepdim=True)
    own, other = 1 - c * points.square().sum(1, keepdim=True), 1 - c * center.square().sum()
    y = c * square / (own * other)
    turn = 2 * gap / (own * other) + 2 * c * center * square / (own * other.square())  # of y / c
    quotient = _quotient(y)
    slope = (quotient * turn).sum(0)
    flat = (quotient * (2 / (own * other) + 2 * c * square / (own * other.square()))).sum()
    cross = torch.outer((quotient * 4 * c / (own * other.square()) * gap).sum(0), center)
    outer = (quotient * 8 * c**2 * square / (own * other**3)).sum() * torch.outer(center, center)
    steep = (c * _quotient_slope(y) * turn).mT @ turn
    return slope, flat * _symmetric.eye(cross) + cross + cross.mT + outer + steep
