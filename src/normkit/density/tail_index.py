"""How heavy a tail is, from the largest values."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals, widest

NAME = "tail-index"


@method(
    NAME,
    paper="Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311",
    shape="N : unit",
    over="N",
    invariant=("scale",),
)
def tail_index(x: Tensor, *, method: str = "hill") -> Tensor:
    """Estimate the index of a tail from the k largest values, for each k.

    For deciding which margins of the data are heavy, before a flow gets ``tail-adaptive-base``. The estimate counts
    only where it is steady in k, and few values may have no such stretch.

    The degree of freedom of a margin is 1 / xi. With X sorted, the largest first, and M_p the mean over i <= k of (log
    X_i - log X_{k+1})^p,

        hill     xi_k = M_1,  k = 1 ... n - 1
        moments  xi_k = M_1 + 1 - 1 / (2 (1 - M_1^2 / M_2)),  k = 2 ... n - 1

    Args:
        x: n positive values, |data| of one margin, (n,).
        method: ``"hill"``, which is never negative, or ``"moments"``, which is where the tail ends.

    Returns an estimate for each k.

    Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311.

    Differs from the authors' code in: k is left to the reader, where they take it from a random double bootstrap.
    """
    check.choice(NAME, "method", method, ("hill", "moments"))
    wide = reals(NAME, "x", x, (None,))
    least = 2 if method == "hill" else 3
    if len(x) < least:
        raise ValueError(f"{NAME}: x must have at least {least} values with method={method!r}, but has {len(x)}")
    top = widest(wide).sort(descending=True).values.log()
    top = top - top[0]  # what all share costs no digits
    count = torch.arange(1, len(top), dtype=top.dtype, device=top.device)
    mean, lower = top[:-1].cumsum(0) / count, top[1:]
    first = mean - lower
    if method == "hill":
        return first.to(x.dtype)
    square = top[:-1].square().cumsum(0) / count
    first, second = first[1:], (square - 2 * lower * mean + lower.square())[1:]
    return (first + 1 - 0.5 / (1 - first.square() / second)).to(x.dtype)
