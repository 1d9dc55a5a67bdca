"""What the functions of scores share: scores without NaN, and softmaxes over a bank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import accurate

BLOCK = 2**18  # numbers of a bank that are summed at once, where a processor's cache holds them


def scores(owner: object, name: str, x: Tensor, wanted: Sequence[int | None], like: Tensor | None = None) -> Tensor:
    """Require real scores of ``wanted`` shape without NaN, and return them in the accurate type."""
    check.floating(owner, x, name)
    check.values(owner, name, x, wanted, x if like is None else like)
    if check.readable(x) and x.isnan().any():
        raise ValueError(f"{check.whose(owner)}: {name} has NaN")
    return accurate(x)


def bank(owner: object, name: str, x: Tensor, similarity: Tensor) -> Tensor:
    """Require scores of at least one row for the gallery of ``similarity`` (Q, G)."""
    matrix = scores(owner, name, x, (None, similarity.shape[1]), similarity)
    if not len(x):
        raise ValueError(f"{check.whose(owner)}: {name} must have at least one row, but its shape is {tuple(x.shape)}")
    return matrix


def invert(similarity: Tensor, bank: Tensor, beta: float) -> Tensor:
    """Return exp(beta similarity) over the sum of the same of the bank, column by column."""
    return above_least(similarity, beta, log_sums(bank, beta))


def above_least(similarity: Tensor, beta: float, less: Tensor) -> Tensor:
    """Return exp(beta similarity - less), with one number of ``less`` a column."""
    exponents = beta * similarity
    if not check.readable(exponents):
        return (exponents - less).exp()
    return exponents.sub_(less).exp_()  # what was multiplied is no one else's, nor wanted by a gradient


def log_sums(bank: Tensor, beta: float) -> Tensor:
    """Return the logarithm of the sum of exp(beta bank), column by column."""
    if not check.readable(bank):
        return torch.logsumexp(beta * bank, 0)
    width = max(1, BLOCK // len(bank))
    return torch.cat([torch.logsumexp(beta * part, 0) for part in bank.split(width, 1)])


def dynamic(similarity: Tensor, bank: Tensor, beta: float, top: int) -> Tensor:
    """Return the inverted softmax in rows whose best item is among the ``top`` of some row of the bank."""
    if not similarity.numel():
        return similarity.clone()
    near = near_hubs(similarity.argmax(1), bank, top)
    if not check.readable(similarity):
        return torch.where(near.unsqueeze(1), invert(similarity, bank, beta), similarity)
    if near.all():
        return invert(similarity, bank, beta)
    rows = near.nonzero().flatten()
    return similarity.index_copy(0, rows, invert(similarity[rows], bank, beta))


def near_hubs(best: Tensor, bank: Tensor, top: int) -> Tensor:
    """Tell which items are among the ``top`` of some row of the bank."""
    hubs = largest(bank, top)[1].flatten()
    return torch.zeros(bank.shape[1], dtype=torch.bool, device=bank.device).index_fill(0, hubs, True)[best]


def largest(x: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row and their places; of equal ones the first, where it is one."""
    return x.max(1, keepdim=True) if top == 1 else x.topk(min(top, x.shape[1]), dim=1)


def nearest_mean(x: Tensor, k: int, dim: int) -> Tensor:
    """Return the mean of the k largest scores of each row or column, of all where there are fewer."""
    return x.topk(min(k, x.shape[dim]), dim=dim).values.mean(dim)


def normal_rank(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the logarithm of the chance of less than ``x`` under a normal law; of one without width, of a half."""
    wide = variance > 0
    z = torch.where(wide, (x - mean) * torch.where(wide, variance, 1).rsqrt(), 0)
    return torch.special.log_ndtr(z)
