"""The part of a step along the weight, which only makes a scale-invariant weight longer."""

from __future__ import annotations

import math

from torch import Tensor


def project(w: Tensor, g: Tensor, u: Tensor, delta: float, eps: float) -> tuple[Tensor, bool]:
    """Take the share along ``w`` off ``u`` where ``g`` stands nearly upright on ``w``; tell whether it did."""
    if w.dim() < 2 or delta == 0:
        return u, False
    for view in ((len(w), -1), (1, -1)):
        rows, along = w.reshape(view), g.reshape(view)
        length = rows.norm(dim=1, keepdim=True)
        product = (rows * along).sum(1, keepdim=True)
        cosine = product.abs() / (length.clamp(min=eps) * along.norm(dim=1, keepdim=True).clamp(min=eps))
        if cosine.max() < delta / math.sqrt(rows.shape[1]):
            n, step = rows / (length + eps), u.reshape(view)
            return (step - n * (n * step).sum(1, keepdim=True)).view_as(u), True
    return u, False
