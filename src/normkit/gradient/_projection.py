"""The part of a step along the weight, which only makes a scale-invariant weight longer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from normkit.gradient._optimizer import by_rows
from normkit.gradient._sharded import is_sharded, largest, reduce

Projection = Callable[[Tensor], Tensor]  # takes the share along a weight off a direction


def projection(w: Tensor, g: Tensor, delta: float, eps: float) -> Projection | None:
    """What a step of ``w`` is to be projected by, over rows or else over the whole: where ``g`` is nearly upright."""
    if w.dim() < 2 or delta == 0 or not w.numel():
        return None
    lengths, others, products = _of_rows(w, g)
    if _upright(products, lengths, others, delta, w[0].numel(), eps):
        return lambda u: _without(u, w, lengths, tuple(range(1, w.dim())), eps)
    length, other, product = (reduce(x) for x in (lengths.norm(), others.norm(), products.sum()))
    if _upright(product, length, other, delta, w.numel(), eps):
        return lambda u: _without(u, w, length, tuple(range(w.dim())), eps)
    return None


def _of_rows(w: Tensor, g: Tensor) -> list[Tensor]:
    """Lengths of the rows of both, and their products: (rows, 1, ...)."""
    axes = tuple(range(1, w.dim()))

    def measured(w: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        length, other = (torch.linalg.vector_norm(x, dim=axes, keepdim=True) for x in (w, g))
        return length, other, (w * g).sum(axes, keepdim=True)

    if is_sharded([w, g]):
        return [reduce(x) for x in measured(w, g)]
    blocks = [measured(*pair) for pair in by_rows(w, g)]
    return [torch.cat(xs) for xs in zip(*blocks, strict=True)]


def _upright(product: Tensor, length: Tensor, other: Tensor, delta: float, entries: int, eps: float) -> bool:
    cosine = product.abs() / (length.clamp(min=eps) * other.clamp(min=eps))
    return bool(largest(cosine) < delta / math.sqrt(entries))


def _without(u: Tensor, w: Tensor, length: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    n = w / (length + eps)
    return u - n * reduce((n * u).sum(axes, keepdim=True))
