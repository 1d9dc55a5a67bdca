"""How well attention sets its heaviest tokens apart from the rest, and how strongly its weights answer to the scores.

Limitations of Normalization in Attention Mechanism (Mudarisov et al., 2025), arXiv 2508.17821.

>>> weights = torch.tensor([[0.8, 0.1, 0.1]])
>>> values = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])
>>> attention_separation(weights, values, top=1)
Separation(distance=tensor([1.7062]), fraction=tensor([1.]), bound=tensor([1.8000]))
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.ops.spectral import by_lapack
from normkit.statistics import accurate


class Separation(NamedTuple):
    """Distance, separable fraction and bound of the distance, each (N,)."""

    distance: Tensor
    fraction: Tensor
    bound: Tensor


@method(
    "attention-separation",
    paper="Limitations of Normalization in Attention Mechanism (Mudarisov et al., 2025), arXiv 2508.17821",
    evidence="equations",
    shape="N C : simplex",
    over="C",
    inputs={"values": "N C F"},
    example={"top": 2},
    exempt={"gradcheck": "which tokens are the heaviest, and which is the nearest, changes by steps"},
)
def attention_separation(weights: Tensor, values: Tensor, *, top: int) -> Separation:
    """Compare the weighted sum of the heaviest tokens with every other token, as weighted.

    For asking how many tokens a row of attention can keep apart from the rest, as a context grows. Where only the
    spread of the weights is of interest, ``attention-entropy`` needs no values.

    With I the ``top`` indices of the largest weights a, tokens x, and A the sum of a over I,

        s        = sum_{i in I} a_i x_i
        distance = sum_{j not in I} |s - a_j x_j|
        fraction = the share of i in I whose |s - a_i x_i| is at most min_{j not in I} |s - a_j x_j|
        bound    = (1 - A) max |x_j - x_i| + ((L - top + 1) A - 1) max_{i in I} |x_i|,    over i in I, j not in I

    The distance never exceeds the bound, and collapses as ``top`` nears L. The paper's reading of the fraction takes
    values of length 1. The bound's formula is derived anew from the paper's text.

    Args:
        weights: one row of attention, (N, L).
        values: its tokens, (N, L, d).
        top: how many tokens count as selected, at most L.
    """
    check.values("attention_separation", "weights", weights, (None, None), weights)
    check.values("attention_separation", "values", values, (*weights.shape, None), weights)
    length = weights.shape[1]
    if check.size("attention_separation", "top", top) > length:
        raise ValueError(f"attention_separation: top must be at most L={length}, the number of weights, not {top}")
    weights, values = accurate(weights), accurate(values)
    index = weights.topk(top).indices
    selected = torch.zeros_like(weights, dtype=torch.bool).scatter(1, index, True)
    weighted = weights.unsqueeze(-1) * values
    total = torch.where(selected.unsqueeze(-1), weighted, 0).sum(1, keepdim=True)
    apart = (total - weighted).norm(dim=-1)
    nearest = torch.where(selected, math.inf, apart).amin(1, keepdim=True)
    within = (selected & (apart <= nearest)).sum(1).to(weights.dtype) / top
    bound = _bound(weights, values, index, selected)
    return Separation(torch.where(selected, 0, apart).sum(1), within, bound)


def _bound(weights: Tensor, values: Tensor, index: Tensor, selected: Tensor) -> Tensor:
    length, top = weights.shape[1], index.shape[1]
    largest = values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
    pairs = torch.cdist(largest, values, compute_mode="donot_use_mm_for_euclid_dist")
    farthest = torch.where(selected.unsqueeze(1), 0, pairs).amax((1, 2))
    mass = weights.gather(1, index).sum(1)
    return (1 - mass) * farthest + ((length - top + 1) * mass - 1) * largest.norm(dim=-1).amax(1)


def sensitivity(logits: Tensor, direction: Tensor, *, temperature: float = 1.0, step: float = 1e-3) -> Tensor:
    """Return how far a step along ``direction`` moves the softmax, divided by the step: (N,).

        |softmax((l + step * v) / temperature) - softmax(l / temperature)| / step

    A difference of nearly equal numbers: give float64 for small steps.

    Args:
        logits: scores of a row, (N, L).
        direction: of length 1, (N, L).
        temperature: divides the logits.
        step: how far along.
    """
    check.floating("sensitivity", logits, "logits")
    check.shape("sensitivity", "logits", logits, (None, None))
    check.values("sensitivity", "direction", direction, logits.shape, logits)
    temperature = check.number("sensitivity", "temperature", temperature, 0, open_low=True)
    step = check.number("sensitivity", "step", step, 0, open_low=True)
    logits, direction = accurate(logits), accurate(direction)
    moved = torch.softmax((logits + step * direction) / temperature, -1) - torch.softmax(logits / temperature, -1)
    return moved.norm(dim=-1) / step


def jacobian_norm(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the spectral norm of the softmax's Jacobian, (diag(p) - p pᵀ) / temperature: (N,).

    At most 1 / (2 temperature), which two equal scores far above the others reach; the 1 / (4 temperature) that the
    paper prints bounds single entries.

    Args:
        logits: scores of a row, (N, L).
        temperature: divides the logits.
    """
    check.floating("jacobian_norm", logits, "logits")
    check.shape("jacobian_norm", "logits", logits, (None, None))
    temperature = check.number("jacobian_norm", "temperature", temperature, 0, open_low=True)
    p = torch.softmax(accurate(logits) / temperature, -1)
    jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    return by_lapack(torch.linalg.eigvalsh, jacobian).amax(-1) / temperature
