"""Pairs of queries and items, made so that one knows which belong together, and what a ranking of them is worth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

import normkit as nk
from normkit.claims.measures import randn

PAIRS, DIM, NOISE = 1000, 50, 1.7


class Scores(NamedTuple):
    """Cosines of queries, of other queries and of other items, each with the same items; pairs on the diagonal."""

    queries: Tensor
    bank: Tensor
    gallery: Tensor


def scores(hubs: float = 0.0, dim: int = DIM, size: int = PAIRS, foreign: float = 0.0) -> Scores:
    """Cosines of noisy queries with items.

    With ``hubs`` all have some of one direction, some items much of it. A ``foreign`` bank is one of queries about
    something else: far along a direction of its own.
    """
    common, other = (normalize(randn(dim), dim=0) * dim**0.5 for _ in range(2))

    def some(count: int) -> tuple[Tensor, Tensor]:
        meant = randn(count, dim)
        items = meant + hubs * randn(count, 1).abs() * common
        return items, meant + NOISE * randn(count, dim) + hubs * randn(count, 1).abs() * common

    items, queries = some(PAIRS)
    others, bank = some(size)
    if foreign:
        bank, others = (randn(size, dim) + foreign * other for _ in range(2))
    gallery = normalize(items).mT
    return Scores(*(normalize(x) @ gallery for x in (queries, bank, others)))


def recall(ranked: Tensor) -> float:
    """How often a query's best item is its own, in points."""
    return 100 * (ranked.argmax(1) == torch.arange(len(ranked))).double().mean().item()


def skewness(ranked: Tensor) -> float:
    """The skewness of how often items are among the ten best."""
    return float(nk.hubness(ranked).full_skewness)
