"""What is claimed of scores that are normalized over queries."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

QUERIES, ITEMS = 200, 50


def average_precision(scores, right):
    """The average precision of all pairs in one ranking."""
    hits = right.flatten()[scores.flatten().argsort(descending=True)].double()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum() / hits.sum()


def gain(seed, clutter=1.0):
    """The gain of the average precision over all queries, each of which has clutter of its own."""
    level = clutter * randn(QUERIES, 1)
    scores, background = (level + 0.2 * randn(QUERIES, ITEMS) for _ in range(2))
    right = torch.zeros(QUERIES, ITEMS, dtype=torch.bool)
    right[: QUERIES // 2, 0] = True  # half of the queries have a match
    scores = scores + 1.0 * right
    return average_precision(nk.score_normalization(scores, background, rank=10, factor=1.0), right) - (
        average_precision(scores, right)
    )


CLAIMS = [
    Measured(
        "micro-ap",
        says="The average precision over all queries gains 0.1 or more where queries have clutter of their own.",
        measure=gain,
        wanted=above(0.1),
        control=partial(gain, clutter=0.0),
        against="no clutter",
        number="gain of the average precision",
        draws=20,
        rule="mean",
        null=0.0,
        reach="proxy",
    )
]
