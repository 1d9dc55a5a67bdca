"""What attention can express: keys that no query selects, and what layer norm's two steps do about it.

Layer norm projects off the all-ones direction, so that a query along it attends to all keys alike, and scales keys to
one length, so that every key can be selected. On the Expressivity Role of LayerNorm in Transformers' Attention (Brody,
Alon and Yahav, 2023), arXiv 2305.02582; the test is that of Low-Rank Softmax Can Have Unargmaxable Classes (Grivas,
Bogoychev and Lopez, 2022), arXiv 2203.06462.

>>> corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
>>> unselectable_keys(torch.cat([corners, corners.mean(0, keepdim=True)]))
tensor([False, False, False,  True])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

TRIES = 3
ENTRIES = 2**24  # of the tables that are worked on at once: 128 MiB


def projection_fraction(x: Tensor) -> Tensor:
    """Return the share of |x|² that lies along the all-ones direction, (...) for x (..., dim): 0 behind a projection
    off it.

    >>> projection_fraction(torch.tensor([[2.0, 2.0], [1.0, -1.0], [0.0, 0.0]]))
    tensor([1., 0., 0.])
    """
    check.floating("projection_fraction", x)
    x = accurate(x)
    length = x.square().sum(-1) * x.shape[-1]
    return x.sum(-1).square() / torch.where(length > 0, length, 1)


@method(
    "unselectable-keys",
    paper="On the Expressivity Role of LayerNorm in Transformers' Attention (Brody et al., 2023), arXiv 2305.02582",
    evidence="equations",
    shape="N C",
    over="N C",
    exempt={"gradcheck": "a yes or no for each key has no gradient"},
)
@torch.no_grad()
def unselectable_keys(keys: Tensor, *, bound: float = 100.0, tolerance: float = 1e-6) -> Tensor:
    """Find the keys that never get the highest score, whatever the query: True where a key is one of them, (n,).

    For asking what a norm in front of attention is good for: without one, keys inside the hull of others cannot win for
    any query. It solves a program a key, for up to a few thousand keys; how even the weights are is asked by
    ``attention-entropy``.

    They are those in the convex hull of the others. Per key i, over a query x and a radius r,

        maximize r  such that  (k_j - k_i) · x + r |k_j - k_i| <= 0  for all j,   -bound <= x <= bound

    and the key is unselectable if the best r is below the tolerance. Equal keys are tied, so neither can be selected.
    Keys on a sphere, as RMS norm and layer norm make them, can all be selected.

    Solved for all keys at once by the simplex method, in float64: n programs of n rows.

    Args:
        keys: (n, d).
        bound: the largest entry of a query.
        tolerance: the least radius of a key that can be selected.
    """
    check.floating("unselectable_keys", keys, "keys")
    check.shape("unselectable_keys", "keys", keys, (None, None))
    bound = check.number("unselectable_keys", "bound", bound, 0, open_low=True)
    tolerance = check.number("unselectable_keys", "tolerance", tolerance, 0, open_low=True)
    n, d = keys.shape
    if n < 2:
        return torch.zeros(n, dtype=torch.bool, device=keys.device)
    keys = keys.double()
    several = max(1, ENTRIES // ((d + 2) * (n + 2 * d)))
    index = torch.arange(n, device=keys.device)
    return torch.cat([_unselectable(_directions(keys, part), bound, tolerance) for part in index.split(several)])


def _directions(keys: Tensor, index: Tensor) -> Tensor:
    """The unit vectors towards each key of ``index`` from all others, (keys, n - 1, d); 0 from an equal one."""
    others = torch.arange(len(keys) - 1, device=keys.device)
    others = others + (others >= index.unsqueeze(-1))
    apart = keys[index].unsqueeze(1) - keys[others]
    largest = apart.abs().amax(-1, keepdim=True)
    apart = apart / torch.where(largest > 0, largest, 1)
    length = apart.norm(dim=-1, keepdim=True)
    return apart / torch.where(length > 0, length, 1)


def _unselectable(u: Tensor, bound: float, tolerance: float) -> Tensor:
    """Whether no query selects the key, for each set of directions u (m, d); most are found by trying."""
    hard = ~_is_selected(u, bound, tolerance)
    hard[hard.clone()] = _below(u[hard], bound, tolerance)
    return hard


def _is_selected(u: Tensor, bound: float, tolerance: float) -> Tensor:
    """Whether one of a few queries selects the key: the mean direction, then what a perceptron makes of it."""
    query = u.sum(1, keepdim=True)
    hits = torch.zeros(len(u), dtype=torch.bool, device=u.device)
    for _ in range(TRIES):
        least, worst = (u @ query.mT).squeeze(-1).min(-1, keepdim=True)
        largest = query.abs().amax((1, 2))
        hits |= (largest > 0) & (least.squeeze(-1) * bound >= tolerance * largest)
        query = query + largest.view(-1, 1, 1) * u.gather(1, worst.unsqueeze(-1).expand(-1, 1, u.shape[-1]))
    return hits


def _below(u: Tensor, bound: float, tolerance: float) -> Tensor:
    """Whether the greatest min_j u_j · x over the cube |x| <= bound stays below ``tolerance``, for each set u (m, d).

    By duality that is the least bound * |sum_j a_j u_j|₁ over weights a that sum to 1. A table of d rows for the
    entries of the sum, one for the value, is pivoted until the value is known to lie on one side.
    """
    table = _start(u, bound)
    m, below = u.shape[1], torch.empty(len(u), dtype=torch.bool, device=u.device)
    left = torch.arange(len(u), device=u.device)
    for _ in range(100 * (m + u.shape[2])):
        value, cost = -table[:, -1, -1], table[:, -1, :-1].amin(-1)
        # the columns of a sum to 1, those of the entries' two signs to value / bound at most
        undecided = (value >= tolerance) & (value + cost * (1 + value / bound) < tolerance) & (cost < -1e-12 * bound)
        below[left] = value < tolerance
        if not undecided.any():
            return below
        if not undecided.all():
            left, table = left[undecided], table[undecided]
        _pivot(table)
    raise RuntimeError(f"unselectable_keys: {len(left)} linear programs did not end")


def _start(u: Tensor, bound: float) -> Tensor:
    """The table of the first vector alone: all columns of a, of both signs' entries, and the right side."""
    m, d = u.shape[1:]
    sign = torch.where(u[:, 0] >= 0, 1.0, -1.0).unsqueeze(-1)
    first = u[:, 0].unsqueeze(-1)
    table = u.new_zeros(len(u), d + 2, m + 2 * d + 1)
    eye = torch.eye(d, dtype=u.dtype, device=u.device)
    table[:, :d, :m] = -sign * (u.mT - first)
    table[:, :d, m : m + d] = sign * eye
    table[:, :d, m + d : m + 2 * d] = -sign * eye
    # the spread of 1e-13 breaks ties, in which the method could go in circles
    table[:, :d, -1] = (first * sign).squeeze(-1) + 1e-13 * torch.linspace(1, math.e, d, dtype=u.dtype, device=u.device)
    table[:, d, :m] = 1
    table[:, d, -1] = 1
    table[:, -1, m:-1] = bound
    table[:, -1] -= bound * table[:, :d].sum(1)
    return table


def _pivot(table: Tensor) -> None:
    """Let the column of the least cost in, in place of the row that it empties first."""
    column = table[:, -1, :-1].argmin(-1).view(-1, 1, 1).expand(-1, table.shape[1], 1)
    enter = table.gather(2, column).squeeze(-1)
    positive = enter[:, :-1] > 1e-11
    ratio = torch.where(positive, table[:, :-1, -1] / torch.where(positive, enter[:, :-1], 1), math.inf)
    leave = ratio.argmin(-1)
    each = torch.arange(len(table), device=table.device)
    row = table[each, leave] / enter[each, leave].unsqueeze(-1)
    enter[each, leave] -= 1
    table -= enter.unsqueeze(-1) * row.unsqueeze(1)
