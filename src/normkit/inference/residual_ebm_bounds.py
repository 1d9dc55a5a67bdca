"""Bounds of the logarithm of a residual energy model's normalizer, from samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores

NAME = "residual-ebm-bounds"


class Bounds(NamedTuple):
    """What the logarithm of the normalizer is above, and below, in expectation."""

    lower: Tensor
    upper: Tensor


@method(
    NAME,
    paper="Residual Energy-Based Models for Text Generation (Deng et al., 2020), arXiv 2004.11714",
    evidence="abstract",
    shape="... C",
    over="C",
    provenance="the paper's theorem as recalled; no code of the authors for it",
)
def residual_ebm_bounds(energy: Tensor) -> Bounds:
    """Bound the log-normalizer log E[exp(-E)] of a residual energy model from below and above by n samples.

    For its perplexity, which needs log Z of each prefix. With T_n = log mean_i exp(-E_i), and T_(n-1) the mean of the
    same over the n sets with one sample left out,

        lower = T_n,    upper = (2n - 1) T_n - 2 (n - 1) T_(n-1)

    They hold in expectation, for n large enough: of one draw upper may lie below lower. Report both with their spread
    over prefixes.

    Args:
        energy: of n >= 2 samples of the language model, (..., n).

    Returns two times (...). Residual Energy-Based Models (Deng et al., 2020), arXiv 2004.11714.
    """
    check.floating(NAME, energy, "energy")
    if energy.dim() == 0 or energy.shape[-1] < 2:
        raise ValueError(f"{NAME}: energy must end in at least 2 samples, but its shape is {tuple(energy.shape)}")
    wide = -scores(NAME, "energy", energy, energy.shape)
    n = wide.shape[-1]
    whole = torch.logsumexp(wide, -1)
    largest = torch.arange(n, device=wide.device) == wide.argmax(-1, keepdim=True)
    share = torch.softmax(wide, -1).masked_fill(largest, 0)  # at most 1/2, so that what is left has all its digits
    rest = torch.logsumexp(wide.masked_fill(largest, -torch.inf), -1)
    without = ((n - 1) * whole + torch.log1p(-share).sum(-1) + rest) / n - math.log(n - 1)
    whole = whole - math.log(n)
    upper = (2 * n - 1) * whole - 2 * (n - 1) * without
    return Bounds(whole.to(energy.dtype), upper.to(energy.dtype))
