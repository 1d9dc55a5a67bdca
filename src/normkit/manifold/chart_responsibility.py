"""Which of several charts a point belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals


@method(
    "chart-responsibility",
    paper="Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv 2303.15244",
    shape="N K",
    over="K",
    inputs={"extra?": "N K"},
    invariant=("shift",),
)
def chart_responsibility(
    losses: Tensor,
    extra: Tensor | None = None,
    *,
    weights: Sequence[float] | None = None,
    log: bool = False,
    floor: float = -25.0,
) -> Tensor:
    """Turn the losses of a point under K charts into the chance that it belongs to each.

    For manifolds that no single chart covers, a variational autoencoder a chart. With l the negative losses plus the
    logarithms of the weights,

        out = softmax(max(l - max l, floor))

    With ``extra`` the charts overlap: for each chart j in turn its loss alone is raised by ``extra[:, j]``; chart k
    gets the largest of its K logarithms, which are floored and normalized again. Floored entries pass no gradient.

    Args:
        losses: negative evidence bounds, (N, K).
        extra: what a code that is moved outwards costs more, (N, K); see ``chart-elbo``.
        weights: of the charts, K positive numbers, divided by their sum; None: equal.
        log: return logarithms.
        floor: how far a logarithm may lie below the largest.

    Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv 2303.15244.
    """
    wide = reals("chart-responsibility", "losses", losses, (None, None))
    floor = check.number("chart-responsibility", "floor", floor, high=0.0)
    wide = wide - _log_weights(weights, wide)
    if extra is None:
        logarithms = _floor(-wide, floor)
    else:
        more = reals("chart-responsibility", "extra", extra, tuple(losses.shape), losses)
        variants = wide.unsqueeze(1) + torch.diag_embed(more)
        logarithms = _floor(_floor(-variants, floor).amax(1), floor)
    return (logarithms if log else logarithms.exp()).to(losses.dtype)


def _log_weights(weights: Sequence[float] | None, like: Tensor) -> Tensor:
    values = [1.0] * like.shape[1] if weights is None else weights
    values = check.numbers("chart-responsibility", "weights", values, 0.0, open_low=True)
    if len(values) != like.shape[1]:
        raise ValueError(f"chart-responsibility: weights must be {like.shape[1]} numbers, not {len(values)}")
    shares = torch.tensor(values, dtype=like.dtype, device=like.device)
    return (shares / shares.sum()).log()


def _floor(logarithms: Tensor, floor: float) -> Tensor:
    below = logarithms - logarithms.amax(-1, keepdim=True)
    return torch.log_softmax(below.clamp(min=floor), -1)
