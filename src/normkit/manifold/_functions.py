"""The functions of matrices that users call: what a triangle alone would answer for is refused.

So are second derivatives, in which slopes would be constants.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from normkit.manifold import _symmetric
from normkit.manifold._points import definite, square, symmetric

Real = Callable[[Tensor], Tensor]


def log(x: Tensor) -> Tensor:
    """Return the logarithms of symmetric positive definite matrices ``x`` (..., n, n).

    An eigenvalue below a share of the largest, 5e-32 and in float32 1e-14, counts as that share, and has no gradient. A
    second derivative is refused, as of all functions of matrices.
    """
    return _symmetric.log(_definite("log", x)).to(x.dtype)


def sqrt(x: Tensor) -> Tensor:
    """Return the square roots of positive definite matrices ``x`` (..., n, n); small eigenvalues as in ``log``."""
    return _symmetric.sqrt(_definite("sqrt", x)).to(x.dtype)


def rsqrt(x: Tensor) -> Tensor:
    """Return the inverses of the square roots of ``x`` (..., n, n); small eigenvalues as in ``log``."""
    return _symmetric.rsqrt(_definite("rsqrt", x)).to(x.dtype)


def power(x: Tensor, exponent: float | Tensor) -> Tensor:
    """Return powers of positive definite matrices ``x`` (..., n, n); small eigenvalues as in ``log``.

    An ``exponent`` that is a tensor gets its gradient.
    """
    return _symmetric.power(_definite("power", x), exponent).to(x.dtype)


def exp(x: Tensor) -> Tensor:
    """Return the exponentials of symmetric matrices ``x`` (..., n, n)."""
    return _symmetric.exp(symmetric("exp", "x", _square("exp", x))).to(x.dtype)


def spectral(x: Tensor, function: Real, slope: Real, *, relative: bool = True, diagonal: Real | None = None) -> Tensor:
    """Return a function of symmetric matrices ``x`` (..., n, n): a ``function`` of numbers with derivative ``slope``.

    Eigenvalues count as equal by their own size, or where not ``relative`` by 1. A gradient is multiplied by the matrix
    of divided differences; ``diagonal`` is the slope on its diagonal alone. What ``function`` learns gets its gradient.
    """
    of = _symmetric.spectrum(symmetric("spectral", "x", _square("spectral", x)))
    return _symmetric.apply(of, function, slope, relative=relative, diagonal=diagonal).to(x.dtype)


def _square(owner: str, x: Tensor) -> Tensor:
    return square(owner, "x", x, max(x.dim(), 2))


def _definite(owner: str, x: Tensor) -> Tensor:
    return definite(owner, "x", _square(owner, x))
