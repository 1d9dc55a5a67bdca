"""NFE: entities of a knowledge graph as distributions, relations as maps of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

VARIANTS = ("normal", "two-sided", "kl")


@method(
    "nfe",
    paper="Knowledge Graph Embedding by Normalizing Flows (Xiao et al., AAAI 2023), arXiv 2409.19977",
    shape="N : index 6",
    inputs={"relation": "N : index 3"},
    example={"num_entities": 6, "num_relations": 3, "dim": 4, "gamma": 9.0},
    exempt={
        "half mixed": "what it is called with are whole numbers: the result has the parameters' type",
        "checkpoint reentrant": "torch's older checkpointing passes no gradient where no input has one",
    },
)
class NFE(Method):
    """Score every entity as the tail of a fact by how near its distribution is to that of the head, moved.

    For completing a knowledge graph where how sure a thing is counts beside where it is.

    An entity is the law of a base variable pushed through x -> s x + n; a relation maps it by its scale a and shift b.
    With m = a n_head + b, and n, u those of a tail, sums over dim,

        normal     gamma - sum (m - n)² + (s - u)²,    s = |a s_head|, u = |s_tail|
        two-sided  gamma - sum (m - n)² + (s1 - u1)²/2 + (s2 - u2)²/2 + sqrt(2/pi) (m - n) (s2 - s1 - u2 + u1)
        kl         gamma - sum (s² + (m - n)²) / (2 u²) - log(s / u) - 1/2,    scales by softplus, each apart

    Args:
        num_entities: E.
        num_relations: R; add the inverse of each to the data, since only tails are scored.
        dim: of a distribution.
        variant: ``"normal"``; ``"two-sided"``, a scale below and one above; or ``"kl"``.
        gamma: what is added to all scores, without which the loss does not begin to learn.

    ``nfe(head, relation)``: whole numbers (B,) both; returns scores (B, E). ``nfe.loss(scores, tail)`` is a number:
    every entity but the tail is a wrong one.

    State: ``entity`` (E, 2 dim), of ``"two-sided"`` (E, 3 dim), and ``relation`` (R, 2 dim): means, then scales.

    Knowledge Graph Embedding by Normalizing Flows (AAAI 2023), arXiv 2409.19977.
    """

    def __init__(self, num_entities: int, num_relations: int, dim: int, *, variant: str = "normal", gamma: float = 0.0):
        super().__init__()
        self.num_entities = check.size(self, "num_entities", num_entities)
        self.num_relations = check.size(self, "num_relations", num_relations)
        self.dim = check.size(self, "dim", dim)
        self.variant = check.choice(self, "variant", variant, VARIANTS)
        self.gamma = check.number(self, "gamma", gamma)
        parts = 3 if variant == "two-sided" else 2
        self.entity = nn.Parameter(torch.empty(num_entities, parts * dim).uniform_(-0.1, 0.1))
        self.relation = nn.Parameter(torch.empty(num_relations, 2 * dim).uniform_(-0.1, 0.1))

    def forward(self, head: Tensor, relation: Tensor) -> Tensor:
        """Return the score of every tail."""
        check.index(self, "head", head, (None,), self.num_entities, self.entity)
        check.index(self, "relation", relation, tuple(head.shape), self.num_relations, self.entity)
        mean, *scales = accurate(self.entity).split(self.dim, 1)
        factor, shift = accurate(self.relation)[relation].split(self.dim, 1)[::-1]
        moved = factor * mean[head] + shift
        if self.variant == "kl":
            [scale] = map(F.softplus, scales)
            distance = _divergence(moved, F.softplus(factor) * scale[head], mean, scale)
        else:
            distance = _wasserstein(moved, [(factor * s[head]).abs() for s in scales], mean, [s.abs() for s in scales])
        return (self.gamma - distance).to(self.entity.dtype)

    def loss(self, scores: Tensor, tail: Tensor) -> Tensor:
        """Return how far scores (B, E) are from telling the tails (B,) from all else, a single number."""
        check.values(self, "scores", scores, (None, self.num_entities), scores)
        check.index(self, "tail", tail, (len(scores),), self.num_entities, scores)
        sign = 1 - 2 * F.one_hot(tail, self.num_entities)
        return F.softplus(sign * accurate(scores)).sum(1).mean().to(scores.dtype)


def _squares(x: Tensor, y: Tensor) -> Tensor:
    """The squared distance of every row of one to every row of the other."""
    return x.square().sum(1, keepdim=True) - 2 * x @ y.T + y.square().sum(1)


def _wasserstein(moved: Tensor, spread: list[Tensor], mean: Tensor, scales: list[Tensor]) -> Tensor:
    apart = sum(_squares(s, u) for s, u in zip(spread, scales, strict=True)) / len(scales)
    if len(scales) == 1:
        return _squares(moved, mean) + apart
    skew, own = spread[1] - spread[0], scales[1] - scales[0]
    pairs = (moved * skew).sum(1, keepdim=True) - moved @ own.T - skew @ mean.T + (mean * own).sum(1)
    return _squares(moved, mean) + apart + math.sqrt(2 / math.pi) * pairs


def _divergence(moved: Tensor, spread: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    precision = 0.5 / scale.square()
    quadratic = (spread.square() + moved.square()) @ precision.T - 2 * moved @ (mean * precision).T
    rest = (mean.square() * precision + scale.log() - 0.5).sum(1)
    return quadratic + rest - spread.log().sum(1, keepdim=True)
