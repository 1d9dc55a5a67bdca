"""The ball of Poincaré, of curvature -c: addition of Möbius, and the exponential map at the origin.

Two conventions are in use, and goldens of both: ``Clamped`` has those of hyperbolic category discovery, which bounds
arguments and denominators; the functions without are exact and bound only what has no value.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import full_precision, root

OUTSIDE = "these are no points of the ball"
TINY = 1e-15
MOST = 1.01  # of the radius: rounding to bfloat16 takes a point no further out
BORDER = {torch.float64: 1e-5, torch.float32: 4e-3}  # how far from the border points are kept


def norm(x: Tensor) -> Tensor:
    """Return lengths (..., 1), with a gradient of 0 at 0."""
    return root(x.square().sum(-1, keepdim=True))


def require_inside(owner: object, name: str, x: Tensor, c: float) -> None:
    """Refuse points further out than rounding to bfloat16 takes one of the ball of radius 1 / sqrt(c)."""
    if check.readable(x) and x.numel():
        furthest = math.sqrt(c) * norm(x.detach()).max().item()
        if not furthest <= MOST:
            whose = f"{check.whose(owner)}: {name} must lie in the ball of radius {1 / math.sqrt(c):.6g}"
            raise ValueError(f"{whose}, but a point has {furthest:.6g} times its radius")


def add(x: Tensor, y: Tensor, c: float) -> Tensor:
    """Return the sum of Möbius."""
    inner, xx, yy = ((a * b).sum(-1, keepdim=True) for a, b in ((x, y), (x, x), (y, y)))
    above = (1 + 2 * c * inner + c * yy) * x + (1 - c * xx) * y
    return above / (1 + 2 * c * inner + c**2 * xx * yy).clamp(min=TINY)


def ratio(function, x: Tensor) -> Tensor:
    """Return ``function(x) / x`` for a function with a slope of 1 at 0, of lengths that may be 0."""
    small = x < 1e-7 if x.dtype == torch.float64 else x < 1e-4
    safe = torch.where(small, 1, x)
    return torch.where(small, 1, function(safe) / safe)


def artanh(x: Tensor) -> Tensor:
    """Return the inverse hyperbolic tangent, of numbers held below 1."""
    most = 1 - (1e-8 if x.dtype == torch.float64 else 1e-5)
    return torch.atanh(x.clamp(max=most))


def exp0(v: Tensor, c: float) -> Tensor:
    """Return where a tangent vector at the origin leads to."""
    return ratio(torch.tanh, math.sqrt(c) * norm(v)) * v


def log0(y: Tensor, c: float) -> Tensor:
    """Return the tangent vector at the origin that leads to a point."""
    return ratio(artanh, math.sqrt(c) * norm(y)) * y


def project(y: Tensor, c: float) -> Tensor:
    """Shorten points that are too near to the border."""
    length, most = norm(y), (1 - BORDER[y.dtype]) / math.sqrt(c)
    far = length > most
    return torch.where(far, y * (most / torch.where(far, length, 1)), y)


def multiply(x: Tensor, moved: Tensor, c: float) -> Tensor:
    """Return the product of Möbius of a matrix W and x, of which ``moved`` is the plain one."""
    s = math.sqrt(c)
    stretch = ratio(artanh, s * norm(x))  # artanh(s |x|) / (s |x|)
    return ratio(torch.tanh, stretch * s * norm(moved)) * stretch * moved


def distance(x: Tensor, y: Tensor, c: float) -> Tensor:
    """Return the distances (...,) of points."""
    s = math.sqrt(c)
    return (2 / s * artanh(s * norm(add(-x, y, c)))).squeeze(-1)


def gyration(a: Tensor, b: Tensor, v: Tensor, c: float) -> Tensor:
    """Return how the addition of a and b turns v."""
    aa, bb, ab, av, bv = ((x * y).sum(-1, keepdim=True) for x, y in ((a, a), (b, b), (a, b), (a, v), (b, v)))
    along = -(c**2) * av * bb + c * bv + 2 * c**2 * ab * bv
    across = -(c**2) * bv * aa - c * av
    return v + 2 * (along * a + across * b) / (1 + 2 * c * ab + c**2 * aa * bb).clamp(min=TINY)


class Clamped:
    """The same with the bounds of hyperbolic category discovery."""

    LEAST, MARGIN = 1e-5, 1e-3

    @staticmethod
    def artanh(x: Tensor) -> Tensor:
        """Return the inverse hyperbolic tangent of bounded numbers, whose slope at the bound goes on outside."""
        held = x.detach().clamp(-1 + 1e-5, 1 - 1e-5)
        return torch.atanh(held + (x - x.detach()))

    @classmethod
    def length(cls, x: Tensor) -> Tensor:
        """Return lengths of at least 1e-5."""
        return norm(x).clamp(min=cls.LEAST)

    @classmethod
    def project(cls, y: Tensor, c: float) -> Tensor:
        """Shorten points that are beyond 1 - 1e-3 of the radius."""
        length, most = cls.length(y), (1 - cls.MARGIN) / math.sqrt(c)
        return torch.where(length > most, y / length * most, y)

    @classmethod
    def exp0(cls, v: Tensor, c: float) -> Tensor:
        """Return where a tangent vector at the origin leads to."""
        along = math.sqrt(c) * cls.length(v)
        return along.clamp(max=15).tanh() * v / along

    @classmethod
    def add(cls, a: Tensor, b: Tensor, c: float) -> Tensor:
        """Return the sum of Möbius."""
        inner, aa, bb = ((x * y).sum(-1, keepdim=True) for x, y in ((a, b), (a, a), (b, b)))
        above = (1 + 2 * c * inner + c * bb) * a + (1 - c * aa) * b
        return above / (1 + 2 * c * inner + c**2 * aa * bb + 1e-5)

    @classmethod
    def distances(cls, x: Tensor, y: Tensor, c: float) -> Tensor:
        """Return the distances (N, M) of points (N, D) and (M, D).

        The sum of Möbius of -x and y is as long as y - x times the root of its denominator, over the denominator: no
        pair needs D numbers. Products of near points are noise, but for their derivatives, which alone are taken.
        """
        xx, yy = x.square().sum(1, keepdim=True), y.square().sum(1)
        with full_precision(x):
            products = xx + yy - 2 * x @ y.T
        apart = torch.cdist(x.detach(), y.detach(), compute_mode="donot_use_mm_for_euclid_dist").square()
        apart = apart + (products - products.detach())
        below = c * apart + (1 - c * xx) * (1 - c * yy)
        length = root((apart * below).clamp(min=0)) / (below + 1e-5)
        return 2 / math.sqrt(c) * cls.artanh(math.sqrt(c) * length)
