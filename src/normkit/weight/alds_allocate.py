"""ALDS's allocation: ranks for all layers of a network, at a budget."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.weight._fold import as_kernel, curve, fold

NAME = "alds-allocate"
STARTS, ROUNDS = (3, 5, 7, 9), 4


class Layer:
    """A layer's weight: its size, and for each number of splits its error curve, full rank and cost of a rank."""

    def __init__(self, weight: Tensor):
        self.kernel = as_kernel(NAME, weight, "weights").detach().double()
        self.size = self.kernel.numel()
        self.rows, self.columns = fold(self.kernel, 0).shape
        self.curves: dict[int, Tensor] = {}
        self.divisors = [d for d in range(self.kernel.shape[1], 0, -1) if self.kernel.shape[1] % d == 0]

    def curve(self, splits: int) -> Tensor:
        """The error where j ranks are kept."""
        if splits not in self.curves:
            self.curves[splits] = curve(self.kernel, splits, 0)
        return self.curves[splits]

    def full(self, splits: int) -> int:
        """The largest rank of a block."""
        return min(self.rows, self.columns // splits)

    def cost(self, splits: int) -> int:
        """The numbers that a rank takes."""
        return splits * self.rows + self.columns

    def nearest(self, splits: int) -> int:
        """The nearest number of splits that divides the input channels, the larger one of two."""
        return min(self.divisors, key=lambda d: (abs(d - splits), -d))

    def rank(self, splits: int, level: float) -> int:
        """How many ranks have an error above a level."""
        return max(1, min(self.full(splits), int((self.curve(splits) > level).sum())))

    def better(self, splits: int, budget: int) -> int:
        """The number of splits that loses least where a layer may have ``budget`` numbers."""

        def lost(k: int) -> float:
            rank = math.floor(budget / self.cost(k) + 0.5)
            return math.inf if rank < 1 else float(self.curve(k)[min(self.full(k), rank) - 1])

        best = min(self.divisors, key=lost)
        return best if lost(best) < math.inf else splits


class Solution(NamedTuple):
    """Ranks at a budget, and the error that they all stay below."""

    level: float
    splits: list[int]
    ranks: list[int]


@method(
    NAME,
    paper="Compressing Neural Networks: Towards Determining the Optimal Layer-wise Decomposition (Liebenwein et al., "
    "2021), arXiv 2107.11442",
    shape="C I",
    over="C I",
    example={"keep": 0.6},
)
@torch.no_grad()
def alds_allocate(*weights: Tensor, keep: float, splits: int = 3, search: bool = True) -> tuple[Tensor, Tensor]:
    """Return the rank and the number of splits of each layer that make the largest relative error least.

    For compressing a network to a share of its size: every layer keeps the ranks whose error (``alds-error``) is above
    one level, the lowest at which all of them together fit. The splits are divisors of the input channels.

    Args:
        weights: of linear layers and convolutions, in order.
        keep: the share of all numbers that may be kept.
        splits: without a search, every layer gets the divisor nearest to it.
        search: start at 3, 5, 7 and 9 splits, and four times let each layer take the splits that lose least at its
            present size; the start with the lowest level wins.

    Returns ranks and splits, int64, one a layer; ``alds-decompose`` takes them.

    Compressing Neural Networks (Liebenwein, Maalouf, Feldman, Rus, 2021), arXiv 2107.11442.

    Differs from the authors' code in: the budget is never exceeded; there are no random starts.
    """
    if not weights:
        raise ValueError(f"{NAME}: weights must be one tensor or more")
    layers = [Layer(weight) for weight in weights]
    check.number(NAME, "keep", keep, 0.0, 1.0, open_low=True)
    check.size(NAME, "splits", splits)
    budget = int(keep * sum(layer.size for layer in layers))
    if search:
        starts = [choice for start in STARTS if (choice := _search(layers, budget, start)) is not None]
        choice = min(starts, key=lambda choice: choice.level) if starts else None
        splits = 1
    else:
        choice = _solve(layers, budget, [layer.nearest(splits) for layer in layers])
    if choice is None:
        least = _size(layers, [layer.nearest(splits) for layer in layers], math.inf)
        raise ValueError(f"{NAME}: keep allows {budget} numbers, but no fewer than {least} can be had")
    place = weights[0].device
    return torch.tensor(choice.ranks, device=place), torch.tensor(choice.splits, device=place)


def _search(layers: list[Layer], budget: int, start: int) -> Solution | None:
    """Search from so many splits, or from half as many as long as these do not fit."""
    first = _solve(layers, budget, [layer.nearest(start) for layer in layers])
    if first is None:
        return _search(layers, budget, start // 2) if start > 1 else None
    last = first
    for _ in range(ROUNDS):
        sizes = [r * layer.cost(k) for layer, r, k in zip(layers, last.ranks, last.splits, strict=True)]
        splits = [layer.better(k, size) for layer, k, size in zip(layers, last.splits, sizes, strict=True)]
        last = _solve(layers, budget, splits) or last
    return first if first.level < last.level else last


def _solve(layers: list[Layer], budget: int, splits: list[int]) -> Solution | None:
    """Find the lowest level, among all entries of the curves, whose ranks fit; the size falls as the level rises."""
    levels = torch.cat([layer.curve(k) for layer, k in zip(layers, splits, strict=True)]).unique().tolist()
    low, high = 0, len(levels) - 1
    if _size(layers, splits, levels[high]) > budget:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _size(layers, splits, levels[middle]) <= budget else (middle + 1, high)
    ranks = [layer.rank(k, levels[low]) for layer, k in zip(layers, splits, strict=True)]
    return Solution(levels[low], splits, ranks)


def _size(layers: list[Layer], splits: list[int], level: float) -> int:
    pairs = zip(layers, splits, strict=True)
    return sum(min(layer.size, layer.rank(k, level) * layer.cost(k)) for layer, k in pairs)
