"""How even the rows of attention maps are."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.claims.measures import randn

TOKENS = 32


def rows(core, q: Tensor, k: Tensor) -> Tensor:
    """The map that a core applies, its rows divided by their sums: what it makes of unit vectors as values."""
    v = torch.eye(TOKENS, dtype=torch.float64).expand(1, 1, -1, -1)
    weights = core(q, k, v).clamp(min=0)
    return weights / weights.sum(-1, keepdim=True)


def entropy(weights: Tensor) -> float:
    """The mean entropy of rows, in nats."""
    return torch.special.entr(weights).sum(-1).mean().item()


def pair() -> tuple[Tensor, Tensor]:
    """Queries and keys of one head, as wide as there are tokens."""
    return randn(1, 1, TOKENS, TOKENS), randn(1, 1, TOKENS, TOKENS)
