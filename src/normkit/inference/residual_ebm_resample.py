"""Sampling from a residual energy model: one of several continuations of the language model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.statistics import accurate

NAME = "residual-ebm-resample"


class Resampled(NamedTuple):
    """Which sample was taken, and the weights of all."""

    index: Tensor  # type: ignore[assignment]
    weights: Tensor


@method(
    NAME,
    paper="Residual Energy-Based Models for Text Generation (Deng et al., 2020), arXiv 2004.11714",
    shape="... C",
    over="C",
    inputs={"uniform": "... : unit"},
    invariant=("shift",),
    exempt={"gradcheck": "a choice has no gradient"},
)
@torch.no_grad()
def residual_ebm_resample(energy: Tensor, uniform: Tensor) -> Resampled:
    """Take one of n samples of the language model, with the probability of exp(-energy).

    For drawing texts from a language model with an energy of ``residual-ebm-loss``. A text costs n samples; where one
    of them has nearly all the weight, n is too small.

    Importance sampling of P(x) ~ P_LM(x) exp(-E(x)), exact as n grows.

        weights = softmax(-energy),    index = how many cumulative weights are <= uniform

    A NaN energy counts as 0. With top-k sampling P_LM is the truncated distribution.

    Args:
        energy: of the samples, (..., n).
        uniform: random numbers of [0, 1), (...), one ``torch.rand`` a row.

    Returns ``index`` int64 (...) and ``weights`` (..., n), without gradient.

    Residual Energy-Based Models for Text Generation (Deng et al., 2020), arXiv 2004.11714.
    """
    check.floating(NAME, energy, "energy")
    if energy.dim() == 0 or energy.shape[-1] == 0:
        raise ValueError(f"{NAME}: energy must end in at least one sample, but its shape is {tuple(energy.shape)}")
    at = scores(NAME, "uniform", uniform, energy.shape[:-1], energy)
    wide = accurate(energy)
    weights = torch.softmax(-torch.where(wide.isnan(), 0, wide), -1)
    below = weights.cumsum(-1)
    index = (below / below[..., -1:] <= at.unsqueeze(-1)).sum(-1).clamp(max=energy.shape[-1] - 1)
    return Resampled(index, weights.to(energy.dtype))
