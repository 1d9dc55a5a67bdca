"""The largest singular value of a weight, followed from pass to pass by power iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from normkit.statistics import full_precision

Unit = Callable[[Tensor], Tensor]
EPS = 1e-12  # floor of a vector's length


class Triplet(NamedTuple):
    """Both singular vectors as far as they are known, and the value, through which alone the gradient flows."""

    left: Tensor
    right: Tensor
    value: Tensor


def unit(x: Tensor, eps: float = EPS) -> Tensor:
    """Divide a vector by its length, or by ``eps`` if that is larger."""
    return F.normalize(x, dim=0, eps=eps)


def iterate(weight: Tensor, right: Tensor, rounds: int = 1, unit: Unit = unit) -> Triplet:
    """Go from a right vector to the left one and back, ``rounds`` times.

    The value is left^T W right. W^T left is at hand, since the new right vector is made of it, so a third product is
    saved; the gradient for W is left right^T all the same.
    """
    still = weight.detach()
    with full_precision(weight):  # an estimate from bfloat16 products is none
        for _ in range(rounds - 1):
            right = unit(still.mT @ unit(still @ right))
        left = unit(still @ right)
        product = (left[None] @ weight)[0]  # as matrices: the gradient of a vector's product lies across the weight
        right = unit(product.detach())
        return Triplet(left, right, product @ right)


def value(weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return left^T W right."""
    with full_precision(weight):
        return left @ (weight @ right)
