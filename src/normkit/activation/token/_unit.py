"""Vectors of length 1."""

from __future__ import annotations

from torch import Tensor

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
