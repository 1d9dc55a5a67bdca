"""Conformal quantiles: predicted quantiles, shifted until held-out data lie below them as often as they should."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import fill
from normkit.inference._scores import scores

NAME = "conformal-quantiles"


@method(
    NAME,
    paper="A Large-Scale Study of Probabilistic Calibration in Neural Network Regression (Dheur and Ben Taieb, 2023), "
    "arXiv 2306.02738",
    shape="N",
    over="N",
    inputs={"quantiles": "N K", "levels": "K : unit", "new_quantiles": "B K"},
    invariant=("shift of target and quantiles",),
)
def conformal_quantiles(target: Tensor, quantiles: Tensor, levels: Tensor, new_quantiles: Tensor) -> Tensor:
    """Add to each predicted quantile the error that held-out data stay below at its level.

    For a trained quantile regression: whatever it predicts, new data lie below in at least the level's share of cases,
    if they are like the held-out ones. Where the whole predicted distribution is to be right, take
    ``quantile-recalibration``.

    With e the N errors target - quantile of a level, in order,

        new_quantile + e_(ceil((N + 1) level)),    the last where there are too few

    Where N is small, extreme levels take the largest error and promise nothing. Quantiles that cross stay crossed.

    Args:
        target: held-out outcomes, (N,).
        quantiles: predicted for them, (N, K).
        levels: of the quantiles, (K,), between 0 and 1.
        new_quantiles: predicted for new data, (M, K).

    A Large-Scale Study of Probabilistic Calibration (Dheur and Ben Taieb, 2023), arXiv 2306.02738.
    """
    y = scores(NAME, "target", target, (None,))
    fill(NAME, "target", target)
    predicted = scores(NAME, "quantiles", quantiles, (len(target), None), target)
    kinds = quantiles.shape[1]
    at = scores(NAME, "levels", levels, (kinds,), target)
    new = scores(NAME, "new_quantiles", new_quantiles, (None, kinds), target)
    if check.readable(at) and not ((at > 0) & (at < 1)).all():
        raise ValueError(f"{NAME}: levels must lie between 0 and 1, but go from {at.min():.4g} to {at.max():.4g}")
    rank = (len(y) + 1) * at.detach().double()
    # a rank that is whole but for the rounding of its level is that rank, and not the next
    place = (rank - 4 * torch.finfo(at.dtype).eps * rank).ceil().long() - 1
    errors = (y.unsqueeze(1) - predicted).sort(0).values
    shift = errors.gather(0, place.clamp(0, len(y) - 1).unsqueeze(0))
    return (new + shift).to(new_quantiles.dtype)
