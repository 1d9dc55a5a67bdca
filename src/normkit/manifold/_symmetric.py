"""Functions of symmetric matrices, whose derivative is right where eigenvalues are equal.

With ``S = U diag(e) Uᵀ`` the derivative of ``f(S) = U diag(f(e)) Uᵀ`` is ``U (L * (Uᵀ dS U)) Uᵀ``, L the matrix of
Loewner: the divided differences of f, and f' on the diagonal. It is written as a term that is zero and whose derivative
is that one, so that one decomposition serves both passes and several functions, and every transform of torch goes
through. Second derivatives are not right: L is a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LEAST = {torch.float64: 1e-7, torch.float32: 1e-4}  # below it log and roots take an eigenvalue for this one


class Spectrum(NamedTuple):
    """A decomposition: eigenvalues, eigenvectors, and zeros that carry the derivative of the matrix in their basis."""

    values: Tensor
    vectors: Tensor
    moved: Tensor

    def still(self) -> Spectrum:
        """The same without a derivative."""
        return Spectrum(self.values, self.vectors, torch.zeros_like(self.moved))


def spectrum(s: Tensor) -> Spectrum:
    """Decompose symmetric matrices (..., n, n)."""
    still = s.detach()
    values, vectors = torch.linalg.eigh(still)
    return Spectrum(values, vectors, vectors.mT @ (s - still) @ vectors)


def apply(
    of: Spectrum | Tensor,
    function: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    *,
    relative: bool = True,
    diagonal: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return f(S) for the function f of numbers with the derivative ``slope``.

    Equal eigenvalues are told by their own size, or with ``relative=False`` by 1; ``diagonal`` stands for the slope on
    the diagonal of L alone.
    """
    of = spectrum(of) if isinstance(of, Tensor) else of
    e = of.values
    image = function(e)
    loewner = _loewner(e, image.detach(), slope(e).detach(), relative)
    if diagonal is not None:
        loewner = torch.diagonal_scatter(loewner, diagonal(e).detach(), 0, -2, -1)
    inner = torch.diag_embed(image) + loewner * of.moved
    return of.vectors @ inner @ of.vectors.mT


def _loewner(e: Tensor, image: Tensor, slope: Tensor, relative: bool) -> Tensor:
    gap = e.unsqueeze(-1) - e.unsqueeze(-2)
    size = torch.maximum(e.unsqueeze(-1).abs(), e.unsqueeze(-2).abs()) if relative else torch.ones_like(gap)
    near = gap.abs() <= torch.finfo(e.dtype).eps ** (1 / 3) * size
    differences = (image.unsqueeze(-1) - image.unsqueeze(-2)) / torch.where(near, 1, gap)
    return torch.where(near, (slope.unsqueeze(-1) + slope.unsqueeze(-2)) / 2, differences)


def _above(e: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues held above the least, and where they are."""
    least = LEAST[e.dtype]
    return e.clamp(min=least), (e > least).to(e.dtype)


def _held(function: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]):
    def image(e: Tensor) -> Tensor:
        return function(_above(e)[0])

    def derivative(e: Tensor) -> Tensor:
        high, moves = _above(e)
        return slope(high) * moves

    return image, derivative


def log(of: Spectrum | Tensor) -> Tensor:
    """Return the logarithm of positive definite matrices."""
    return apply(of, *_held(torch.log, torch.reciprocal))


def sqrt(of: Spectrum | Tensor, held: bool = True) -> Tensor:
    """Return the symmetric square root; of eigenvalues as they are where they are not ``held``."""
    pair = torch.sqrt, lambda e: 0.5 * e.rsqrt()
    return apply(of, *(_held(*pair) if held else pair))


def rsqrt(of: Spectrum | Tensor, held: bool = True) -> Tensor:
    """Return the inverse of the symmetric square root; of eigenvalues as they are where they are not ``held``."""
    pair = torch.rsqrt, lambda e: -0.5 * e**-1.5
    return apply(of, *(_held(*pair) if held else pair))


def exp(of: Spectrum | Tensor) -> Tensor:
    """Return the exponential of symmetric matrices."""
    return apply(of, torch.exp, torch.exp, relative=False)


def power(
    of: Spectrum | Tensor, exponent: float | Tensor, diagonal: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return a power of positive definite matrices; an exponent that is a tensor gets its gradient."""
    return apply(of, lambda e: e**exponent, lambda e: exponent * e ** (exponent - 1), diagonal=diagonal)


def symmetric(x: Tensor) -> Tensor:
    """Return the symmetric part."""
    return (x + x.mT) / 2
