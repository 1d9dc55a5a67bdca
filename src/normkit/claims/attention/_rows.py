"""What an attention core's rows add up to, read through a norm behind it."""

from __future__ import annotations

from torch import Tensor

from normkit.claims.measures import randn


def row_sums(core) -> Tensor:
    """The sums of the rows of the map that a differential core applies.

    Values of 1 give a result o of one number a row, the row's sum; behind the norm, whose eps is 1, that is
    (1 - start) o / sqrt(o^2 + 1).
    """
    heads, width = core.heads, core.head_dim
    q, k = randn(2, 2 * heads, 7, width), randn(2, 2 * heads, 7, width)
    y = core(q, k, randn(2, heads, 7, 2 * width) * 0 + 1) / (1 - core.start)
    return y / (1 - y.square()).sqrt()
