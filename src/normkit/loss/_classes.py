"""What losses over classes share: labels, and logits without some classes."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check


def labels(owner: object, target: Tensor, logits: Tensor) -> Tensor:
    """Return the classes (N,) of ``target``: int64 (N,), or soft labels (N, C), of which the largest counts."""
    return target.argmax(1) if soft(owner, target, logits) else target


def soft(owner: object, target: Tensor, logits: Tensor) -> bool:
    """Check ``target``, and tell whether it is soft labels (N, C) and not int64 (N,)."""
    if not isinstance(target, Tensor) or not target.is_floating_point():
        check.index(owner, "target", target, logits.shape[:1], logits.shape[1], logits)
        return False
    if target.dim() != 2:
        raise TypeError(
            f"{type(owner).__name__}: target must be int64 of shape (N,) or soft labels (N, C), "
            f"not {target.dtype} of shape {tuple(target.shape)}"
        )
    check.values(owner, "target", target, logits.shape, logits)
    return True


def without(z: Tensor, classes: Tensor) -> Tensor:
    """Return ``z`` (N, C) without the columns ``classes`` (N, K) of each row: (N, C - K)."""
    dropped = torch.zeros_like(z, dtype=torch.int64).scatter(1, classes, 1)
    kept = dropped.argsort(dim=1, stable=True)[:, : z.shape[1] - classes.shape[1]]
    return z.gather(1, kept)
