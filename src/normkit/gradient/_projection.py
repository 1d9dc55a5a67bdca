"""The part of a step along the weight, which only makes a scale-invariant weight longer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit.gradient._sharded import largest, settled


def project(w: Tensor, g: Tensor, u: Tensor, delta: float, eps: float) -> tuple[Tensor, bool]:
    """Take the share along ``w`` off ``u`` where ``g`` stands nearly upright on ``w``; tell whether it did."""
    if w.dim() < 2 or delta == 0:
        return u, False
    for axes in (tuple(range(1, w.dim())), tuple(range(w.dim()))):
        length, other = (settled(torch.linalg.vector_norm(x, dim=axes, keepdim=True)) for x in (w, g))
        product = settled((w * g).sum(axes, keepdim=True))
        cosine = product.abs() / (length.clamp(min=eps) * other.clamp(min=eps))
        if largest(cosine) < delta / math.sqrt(math.prod(w.shape[axis] for axis in axes)):
            n = w / (length + eps)
            return u - n * settled((n * u).sum(axes, keepdim=True)), True
    return u, False
