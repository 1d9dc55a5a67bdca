"""Small symmetric matrices, many at once: eigenvalues and eigenvectors, factors of Cholesky, symmetric parts.

The kernels work in double, whatever the type, and matrix by matrix: what is found of one does not depend on others.

>>> import torch
>>> values, vectors = eigh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
>>> values
tensor([1., 3.])
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from normkit import check, kernels
from normkit.kernels import special
from normkit.ops import eager

__all__ = ["cholesky", "eigh", "eigvalsh", "from_log_cholesky", "log_cholesky", "soundness", "symmetric"]


def eigh(s: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (..., n), ascending, and eigenvectors (..., n, n), which are the columns.

    Of matrices (..., n, n) the lower triangle is read, here as in `cholesky`. Without a gradient.
    """
    decomposition = None if eager.runs_formula("eigh", _against(s), s) else _eigen(s, True)
    if decomposition is None or decomposition[1] is None:
        return tuple(by_lapack(torch.linalg.eigh, s.detach()))
    return decomposition[0], decomposition[1]


def eigvalsh(s: Tensor) -> Tensor:
    """Return eigenvalues (..., n) alone, without a gradient."""
    decomposition = None if eager.runs_formula("eigvalsh", _against(s), s) else _eigen(s, False)
    return by_lapack(torch.linalg.eigvalsh, s.detach()) if decomposition is None else decomposition[0]


def by_lapack(decompose: Callable[[Tensor], Any], s: Tensor) -> Any:
    """Decompose symmetric matrices by a function of ``torch.linalg``, those with many rows of zeros too.

    Of such matrices LAPACK may give NaN, or end with an error; with a diagonal far below rounding it does neither.
    """
    try:
        parts = decompose(s)
        last = parts if isinstance(parts, Tensor) else parts[-1]
        if not check.readable(last) or bool(last.isfinite().all()):
            return parts
    except torch.linalg.LinAlgError:
        pass
    room = 1e-3 * torch.finfo(s.dtype).eps * s.abs().amax((-2, -1), keepdim=True)
    return decompose(s + room * torch.eye(s.shape[-1], dtype=s.dtype, device=s.device))


def symmetric(x: Tensor) -> Tensor:
    """Return the symmetric part of matrices (..., n, n)."""
    return (x + x.mT) / 2 if eager.runs_formula("symmetric", _against(x), x) else _Symmetric.apply(x)


def cholesky(x: Tensor) -> Tensor:
    """Return lower factors of positive definite matrices; what has none is torch's LinAlgError."""
    return torch.linalg.cholesky(x) if eager.runs_formula("cholesky", _against(x), x) else _Cholesky.apply(x, False)


def log_cholesky(x: Tensor) -> Tensor:
    """Return lower factors of positive definite matrices, with the logarithms of their diagonals in their place."""
    return _log(x) if eager.runs_formula("log_cholesky", _against(x), x) else _Cholesky.apply(x, True)


def from_log_cholesky(y: Tensor) -> Tensor:
    """Return the matrices that `log_cholesky` gives lower triangles ``y`` of."""
    return _product(y) if eager.runs_formula("from_log_cholesky", _against(y), y) else _Product.apply(y)


def soundness(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each matrix the largest entry of its symmetric part, how far it is from its transpose, and whether it
    is positive definite."""
    x = x.detach()
    if eager.runs_formula("soundness", _against(x), x):
        made = (x + x.mT) / 2
        return made.abs().amax((-2, -1)), (x - x.mT).abs().amax((-2, -1)), torch.linalg.cholesky_ex(made).info == 0
    most, skew, sound = _cholesky_notes(x, None).unbind(-1)
    return most, skew, sound > 0


class _Symmetric(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y, given = x.new_empty(x.shape), eager.pack(x)
        special.require().symmetric(_plan(x), prod(x.shape[:-2]), given, y)
        return y

    @staticmethod
    def backward(ctx, sent: Tensor):
        return symmetric(sent)


def _log(x: Tensor) -> Tensor:
    factor = torch.linalg.cholesky(x)
    return torch.diagonal_scatter(factor, factor.diagonal(0, -2, -1).log(), 0, -2, -1)


def _product(y: Tensor) -> Tensor:
    low = y.tril()
    factor = torch.diagonal_scatter(low, low.diagonal(0, -2, -1).exp(), 0, -2, -1)
    made = factor @ factor.mT
    return (made + made.mT) / 2


class _Cholesky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, logged: bool) -> Tensor:
        factor = x.new_empty(x.shape)
        ctx.logged, ctx.formula = logged, _log if logged else torch.linalg.cholesky
        if not _cholesky_notes(x, factor, logged)[..., 2].all():
            factor = ctx.formula(x)
        ctx.save_for_backward(x, factor)
        return factor

    @staticmethod
    def backward(ctx, sent: Tensor):
        x, factor = ctx.saved_tensors
        if eager.runs_formula("cholesky", eager.derived_again() or _against(sent), sent, factor):
            return eager.differentiate(ctx.formula, (x,), (), sent, (True,))[0], None
        dx, grad = x.new_empty(x.shape), eager.pack(sent)
        special.require().cholesky_backward(_plan(x, ctx.logged), prod(x.shape[:-2]), eager.pack(factor), grad, dx)
        return dx, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        made, given = y.new_empty(y.shape), eager.pack(y)
        special.require().product(_plan(y, True), prod(y.shape[:-2]), given, made)
        return made

    @staticmethod
    def backward(ctx, sent: Tensor):
        [y] = ctx.saved_tensors
        if eager.runs_formula("from_log_cholesky", eager.derived_again() or _against(sent), sent, y):
            return eager.differentiate(_product, (y,), (), sent, (True,))[0]
        dy, given, grad = y.new_empty(y.shape), eager.pack(y), eager.pack(sent)
        special.require().product_backward(_plan(y, True), prod(y.shape[:-2]), given, grad, dy)
        return dy


def _against(s: Tensor) -> str | None:
    """What is against the kernels of matrices, beside what is against all."""
    if torch.compiler.is_compiling():
        return None
    if eager.on_gpu(s):
        return "there is no kernel of matrices on GPUs"
    if s.dtype not in (torch.float32, torch.float64):
        return f"there is no kernel of matrices for {s.dtype}"
    if s.dim() < 2 or s.shape[-1] != s.shape[-2] or s.shape[-1] > special.MOST_SIDE:
        return f"the kernel takes square matrices of up to {special.MOST_SIDE} rows"
    return special.absent()


def _plan(s: Tensor, logged: bool = False) -> bytes:
    return special.MATRIX.pack(eager.code(s), s.shape[-1], logged)


def _eigen(s: Tensor, turns: bool) -> tuple[Tensor, Tensor | None] | None:
    """What the kernel finds, or None where it finds no end."""
    given = eager.pack(s.detach())
    values = s.new_empty(s.shape[:-1])
    rows = s.new_empty(s.shape) if turns else None
    try:
        special.require().eigen(_plan(s), prod(s.shape[:-2]), given, values, rows)
    except kernels.Unsolved:
        return None
    return values, None if rows is None else rows.mT


def _cholesky_notes(x: Tensor, factor: Tensor | None, logged: bool = False) -> Tensor:
    notes, given = x.new_empty((*x.shape[:-2], 3), dtype=torch.float64), eager.pack(x)
    special.require().cholesky(_plan(x, logged), prod(x.shape[:-2]), given, factor, notes)
    return notes
