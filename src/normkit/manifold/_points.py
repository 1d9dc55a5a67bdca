"""Checks of points: what is read of numbers, where they can be read."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.statistics import accurate


def square(owner: object, name: str, x: Tensor, dims: int, size: int | None = None) -> Tensor:
    """Require square matrices on the last two of ``dims`` axes, and return them in the accurate type."""
    check.floating(owner, x, name)
    if x.dim() != dims or x.shape[-1] != x.shape[-2] or (size is not None and x.shape[-1] != size):
        side = "n" if size is None else size
        raise ValueError(
            f"{check.whose(owner)}: {name} must have {dims} axes and end in matrices {side} by {side}, "
            f"but its shape is {tuple(x.shape)}"
        )
    return accurate(x)


def symmetric(owner: object, name: str, x: Tensor) -> Tensor:
    """Return matrices made exactly symmetric; what is not symmetric is refused."""
    if check.readable(x) and x.numel():
        _refuse_skew(f"{check.whose(owner)}: {name} must hold symmetric matrices", *ops.soundness(x)[:2])
    return ops.symmetric(x)


def definite(owner: object, name: str, x: Tensor) -> Tensor:
    """Return matrices made exactly symmetric; what is not symmetric, or has a negative eigenvalue, is refused."""
    if check.readable(x) and x.numel():
        _refuse(owner, name, x.detach())
    return ops.symmetric(x)


def of_full_rank(eigenvalues: Tensor) -> Tensor:
    """Whether ascending eigenvalues (..., n) of each matrix are above what rounding leaves of 0."""
    n, eps = eigenvalues.shape[-1], torch.finfo(eigenvalues.dtype).eps
    return eigenvalues[..., 0] > n * eps * eigenvalues[..., -1]


def have_full_rank(eigenvalues: Tensor) -> bool:
    """Whether all are."""
    return bool(of_full_rank(eigenvalues).all())


def require_definite(owner: object, x: Tensor) -> None:
    """Refuse matrices ``x`` (N, n, n) that are not symmetric and positive definite, and tell the smallest eigenvalue.

    ``owner`` is the module, or the name, that the error message begins with.
    """
    definite(owner, "the matrices", square(owner, "the matrices", x, 3))


@torch.no_grad()
def _refuse(owner: object, name: str, x: Tensor) -> None:
    whose = f"{check.whose(owner)}: {name} must hold symmetric positive definite matrices"
    most, skew, sound = ops.soundness(x)
    _refuse_skew(whose, most, skew)
    if not sound.all():
        wrong = ~x.isfinite().flatten(-2).all(-1)
        if wrong.any():
            raise ValueError(f"{whose}, but {int(wrong.sum())} of {wrong.numel()} hold nan or inf")
        least = ops.eigvalsh(ops.symmetric(x))[..., 0]
        if (least < -10 * x.shape[-1] * torch.finfo(x.dtype).eps * most).any():
            raise ValueError(f"{whose}, but the smallest eigenvalue of one is {least.min().item():.6g}")


def _refuse_skew(whose: str, most: Tensor, skew: Tensor) -> None:
    if (skew > 2e-3 * most).any():
        raise ValueError(f"{whose}, but one differs from its transpose by {skew.max().item():.3g}")
