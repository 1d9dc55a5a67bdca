"""Vectors of length 1."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.ops.sharded import Parts
from normkit.statistics import accurate


def unit(x: Tensor) -> Tensor:
    """Divide by the L2 norm over the last axis, with no floor; a vector of zeros gives NaN.

    The largest entry is taken out first, so that the squares neither underflow nor overflow. It cancels, hence it needs
    no gradient.
    """
    x = accurate(x)
    if x.shape[-1]:
        x = x / x.detach().abs().amax(-1, keepdim=True)
    return x / x.square().sum(-1, keepdim=True).sqrt()


def unit_of_part(part: Parts) -> Tensor:
    """The same of cut vectors, whose processes tell their largest entry and the squares beside it in one message."""
    x, last = accurate(part.local), (part.whole.ndim - 1,)
    own = x.detach().abs().amax(-1, keepdim=True) if x.shape[-1] else x.detach().new_zeros(*x.shape[:-1], 1)
    beside = (x / torch.where(own > 0, own, 1)).square().sum(-1, keepdim=True)
    largest, squares = part.stacked(torch.stack([own, beside]), last).unbind(1)
    most = largest.amax(0).detach()
    share = (largest.detach() / most).square() * squares
    return x / most / share.sum(0).sqrt()
