"""What measures of rankings are by definition."""

import math

import normkit as nk
from normkit.claims.kinds import Identity

GOLD = ["a", None, ["c", "d"]]
RANKED = [["b", "a"], [], ["c", "x", "d"]]
BY_HAND = {
    "accuracy@1": 1 / 2,
    "recall@1": 1 / 4,
    "precision@3": (1 / 3 + 2 / 3) / 2,
    "ndcg@3": (1 / math.log2(3) + (1 + 1 / 2) / (1 + 1 / math.log2(3))) / 2,
    "mrr": (1 / 2 + 1) / 2,
    "nil_f1": 1.0,
    "accuracy": 2 / 3,
}


def error(seed, ranked=RANKED):
    """The largest error over measures that were worked out by hand."""
    measures = nk.RetrievalMeasures(k=(1, 3))(GOLD, ranked)
    return max(abs(measures[name] - value) for name, value in BY_HAND.items())


def reversed_rankings(seed):
    """The same with the rankings reversed."""
    return error(seed, [own[::-1] for own in RANKED])


CLAIMS = [
    Identity(
        "definition",
        says="Rankings made by hand give what the definitions say.",
        measure=error,
        bound=1e-12,
        breaks=reversed_rankings,
        against="rankings reversed",
        draws=1,
    )
]
