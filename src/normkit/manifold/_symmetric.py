"""Functions of symmetric matrices, whose derivative is right where eigenvalues are equal.

With ``S = U diag(e) Uᵀ`` the derivative of ``f(S) = U diag(f(e)) Uᵀ`` is ``U (L * (Uᵀ dS U)) Uᵀ``, L the matrix of
Loewner: the divided differences of f, and f' on the diagonal. One decomposition serves both passes: ``Applied`` says so
to torch's autograd. Where one serves several functions, and under the transforms and compilers of torch, it is written
as a term that is zero and whose derivative is that one. L is a constant there, so that a second derivative is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from normkit import check, ops
from normkit.ops import derivatives
from normkit.statistics import full_precision

Real = Callable[[Tensor], Tensor]

FIRST = "derivatives of functions of matrices are right to the first order"
REFUSAL = "normkit.manifold: functions of matrices and means of points have a first derivative, and no second one"
LEAST = {torch.float64: 1e-7, torch.float32: 1e-4}  # the floor of eigenvalues in the code of some authors


class Spectrum(NamedTuple):
    """A decomposition: eigenvalues, eigenvectors, and zeros that carry the derivative of the matrix in their basis.

    ``still`` ones carry none.
    """

    values: Tensor
    vectors: Tensor
    moved: Tensor
    is_still: bool = False

    def still(self) -> Spectrum:
        """The same without a derivative."""
        return self._replace(is_still=True)

    def above_least(self) -> Spectrum:
        """The same with no eigenvalue below the least."""
        return self._replace(values=self.values.clamp(min=LEAST[self.values.dtype]))


def eye(like: Tensor) -> Tensor:
    """The identity of the size and type of matrices."""
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def spectrum(s: Tensor) -> Spectrum:
    """Decompose symmetric matrices (..., n, n)."""
    still = s.detach()
    values, vectors = ops.eigh(still)
    if constant(s):
        return Spectrum(values, vectors, torch.zeros_like(vectors), True)
    return Spectrum(values, vectors, _turn(vectors.mT, moved(s)))


def moved(x: Tensor) -> Tensor:
    """Return zeros with the derivative of ``x``, but no second one."""
    return once(x - x.detach(), x)


def once(x: Tensor, source: Tensor) -> Tensor:
    """Return ``x`` with its derivative, in which something that depends on ``source`` is a constant."""
    return derivatives.once(x, source, REFUSAL)


def constant(s: Tensor) -> bool:
    """Whether nobody will ask for a derivative by ``s``."""
    return at_once(s) and not (torch.is_grad_enabled() and s.requires_grad)


def at_once(s: Tensor) -> bool:
    """Whether a function of ``s`` may be one node of torch's autograd: not under a transform of torch."""
    return check.readable(s) and forward_ad._current_level < 0


def apply(
    of: Spectrum | Tensor,
    function: Real,
    slope: Real,
    *,
    relative: bool = True,
    diagonal: Real | None = None,
) -> Tensor:
    """Return f(S) for the function f of numbers with the derivative ``slope``.

    Eigenvalues count as equal by their own size, or with ``relative=False`` by 1; ``diagonal`` is the slope on the
    diagonal of L alone.
    """
    if isinstance(of, Tensor):
        if at_once(of):
            return Applied.apply(of, function, slope, relative, diagonal)
        of = spectrum(of)
    image = function(of.values)
    if of.is_still:
        return _spread(of.vectors, image)
    moved = _slopes(of.values, image, slope, relative, diagonal) * of.moved
    if image.requires_grad or not at_once(image):  # by an exponent, whose derivative has the matrix as a constant
        image, moved = once(image, of.moved), once(moved, image)
    return _turn(of.vectors, torch.diag_embed(image) + moved)


class Applied(torch.autograd.Function):
    """A function of matrices, whose backward pass is the formula of Loewner in the basis of the forward one.

    An exponent's own gradient is no part of it: ``function`` is a constant.
    """

    @staticmethod
    def forward(ctx, s: Tensor, function: Real, slope: Real, relative: bool, diagonal: Real | None) -> Tensor:
        """Return the image."""
        values, vectors = ops.eigh(s)
        image = function(values)
        ctx.save_for_backward(s, values, vectors, image)
        ctx.how = slope, relative, diagonal
        return _spread(vectors, image)

    @staticmethod
    @derivatives.once_differentiable(REFUSAL)
    def backward(ctx, saved: tuple[Tensor, ...], sent: Tensor):
        """Return the gradient."""
        _, values, vectors, image = saved
        inner = _slopes(values, image, *ctx.how) * _turn(vectors.mT, sent)
        return _turn(vectors, inner), None, None, None, None


def _turn(vectors: Tensor, inner: Tensor) -> Tensor:
    with _exactly(inner):
        return vectors @ inner @ vectors.mT


def _spread(vectors: Tensor, values: Tensor) -> Tensor:
    with _exactly(values):
        return (vectors * values.unsqueeze(-2)) @ vectors.mT


def _exactly(x: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off, but in an export: torch loads no region within the one of a norm."""
    return nullcontext() if torch.compiler.is_exporting() else full_precision(x)


def _slopes(e: Tensor, image: Tensor, slope: Real, relative: bool, diagonal: Real | None) -> Tensor:
    """The matrix of Loewner, a constant."""
    matrix = _loewner(e, image.detach(), slope(e).detach(), relative)
    return matrix if diagonal is None else torch.diagonal_scatter(matrix, diagonal(e).detach(), 0, -2, -1)


def _loewner(e: Tensor, image: Tensor, slope: Tensor, relative: bool) -> Tensor:
    gap = e.unsqueeze(-1) - e.unsqueeze(-2)
    size = torch.maximum(e.unsqueeze(-1).abs(), e.unsqueeze(-2).abs()) if relative else torch.ones_like(gap)
    near = gap.abs() <= torch.finfo(e.dtype).eps ** (1 / 3) * size
    differences = (image.unsqueeze(-1) - image.unsqueeze(-2)) / torch.where(near, 1, gap)
    return torch.where(near, (slope.unsqueeze(-1) + slope.unsqueeze(-2)) / 2, differences)


def eigenvalues(s: Tensor) -> Tensor:
    """Return eigenvalues, held above the least, without a derivative."""
    return ops.eigvalsh(s.detach()).clamp(min=LEAST[s.dtype])


def is_above_least(s: Tensor) -> bool:
    """Whether the squares of all eigenvalues are seen to be above the least; not under a compiler."""
    if not check.readable(s):
        return False
    least = LEAST[s.dtype] ** 0.5 * torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    return bool(ops.soundness(s.detach() - least)[2].all())


def least(e: Tensor) -> Tensor:
    """The floor of some authors, which is no share of the largest eigenvalue."""
    return torch.full_like(e, LEAST[e.dtype])


def rounding(dtype: torch.dtype) -> Real:
    """Return the floor below which an eigenvalue may be what rounding in that type leaves of 0."""
    return lambda e: _floor(e, torch.finfo(dtype).eps)


def finite(e: Tensor) -> Tensor:
    """A floor far below rounding, at which values and slopes are finite still."""
    return _floor(e, torch.finfo(e.dtype).eps ** 2)


def _floor(e: Tensor, share: float) -> Tensor:
    return (share * e[..., -1:]).clamp(min=torch.finfo(e.dtype).tiny)


def _hold(function: Real, slope: Real, floor: Real) -> tuple[Real, Real]:
    """The function and its slope, of eigenvalues below the floor as of the floor."""

    def above(e: Tensor) -> Tensor:
        return torch.maximum(e, floor(e))

    def derivative(e: Tensor) -> Tensor:
        high = above(e)
        return torch.where(e < high, 0, slope(high))

    return lambda e: function(above(e)), derivative


def log(of: Spectrum | Tensor, floor: Real = finite) -> Tensor:
    """Return the logarithm of positive definite matrices."""
    return apply(of, *_hold(torch.log, torch.reciprocal, floor))


def sqrt(of: Spectrum | Tensor, floor: Real = finite) -> Tensor:
    """Return the symmetric square root."""
    return apply(of, *_hold(torch.sqrt, lambda e: 0.5 * e.rsqrt(), floor))


def rsqrt(of: Spectrum | Tensor, floor: Real = finite) -> Tensor:
    """Return the inverse of the symmetric square root."""
    return apply(of, *_hold(torch.rsqrt, lambda e: -0.5 * e**-1.5, floor))


def exp(of: Spectrum | Tensor) -> Tensor:
    """Return the exponential of symmetric matrices."""
    return apply(of, torch.exp, torch.exp, relative=False)


def power(of: Spectrum | Tensor, exponent: float | Tensor, diagonal: Real | None = None) -> Tensor:
    """Return a power of positive definite matrices; an exponent that is a tensor gets its gradient.

    Args:
        of: the matrices, or their spectrum.
        exponent: of the power.
        diagonal: the slope on the diagonal alone; None: the derivative.
    """
    of = spectrum(of) if isinstance(of, Tensor) and isinstance(exponent, Tensor) else of
    image, slope = _hold(lambda e: e**exponent, lambda e: exponent * e ** (exponent - 1), finite)
    return apply(of, image, slope, diagonal=None if diagonal is None else _hold(diagonal, diagonal, finite)[1])


symmetric = ops.symmetric
