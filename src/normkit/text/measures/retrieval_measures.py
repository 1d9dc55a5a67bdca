"""Retrieval measures: how often, and how high, the right ids are ranked, and whether "none" is said where it is so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text
from normkit.text.measures._ratios import f1, share

Id = str | int
Gold = Id | Sequence[Id] | None


@method(
    "retrieval-measures",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275, and others: the usual definitions",
    evidence="equations",
    shape="",
    provenance="worked out from the definitions",
)
class RetrievalMeasures(Text):
    """Measure ranked ids against the right ones: accuracy, recall, precision, nDCG at k, MRR, and F1 of "none".

    For search and entity linking. Over mentions that have an answer G, R_k the first k ids,

        accuracy@k   share with a right one in R_k        recall@k   |R_k & G| / |G|      precision@k   |R_k & G| / k
        ndcg@k       sum of 1 / log2(rank + 1) over right ones, over its largest value    mrr   1 / rank of the first

    Over all mentions nil_precision, nil_recall, nil_f1 of empty lists, and accuracy: none said where there is none, or
    the first id right. Accuracy or nil_f1 alone can be gamed: report both. Ranked ids should have no duplicates.

    Args:
        k: the numbers of ids that are looked at.

    ``method(gold, ranked)``: for each mention an id, several, or None; and the ranked ids, empty for none.

    The usual definitions, as xMEN (Borchert et al., 2023), arXiv 2310.11275, and others report them.
    """

    calls = {"__call__": (["a", None, ["c", "d"]], [["a", "b"], [], ["x", "c"]])}

    def __init__(self, k: Sequence[int] = (1, 5, 10)):
        self.k = [check.size(self, "k", one) for one in k]

    def __call__(self, gold: Sequence[Gold], ranked: Sequence[Sequence[Id]]) -> dict[str, float]:
        """Return the measures by name."""
        if len(gold) != len(ranked):
            raise ValueError(f"RetrievalMeasures: gold and ranked must be of one length, not {len(gold), len(ranked)}")
        pairs = [(_set(right), list(own)) for right, own in zip(gold, ranked, strict=True)]
        linked = [(right, own) for right, own in pairs if right]
        measures: dict[str, float] = {}
        for k in self.k:
            measures |= {f"{name}@{k}": _mean(_at(k, *pair)[name] for pair in linked) for name in NAMES}
        measures["mrr"] = _mean(_reciprocal(*pair) for pair in linked)
        return measures | _nil(pairs)


NAMES = ("accuracy", "recall", "precision", "ndcg")


def _set(gold: Gold) -> set[Id]:
    return set() if gold is None else {gold} if isinstance(gold, str | int) else set(gold)


def _mean(values) -> float:
    numbers = list(values)
    return share(math.fsum(numbers), len(numbers))


def _at(k: int, right: set[Id], ranked: list[Id]) -> dict[str, float]:
    first = ranked[:k]
    hits = len(right & set(first))
    gain = sum(1 / math.log2(rank + 2) for rank, one in enumerate(first) if one in right)
    most = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(right))))
    return dict(zip(NAMES, (float(hits > 0), hits / len(right), hits / k, gain / most), strict=True))


def _reciprocal(right: set[Id], ranked: list[Id]) -> float:
    return next((1 / rank for rank, one in enumerate(ranked, 1) if one in right), 0.0)


def _nil(pairs: list[tuple[set[Id], list[Id]]]) -> dict[str, float]:
    both = sum(not right and not own for right, own in pairs)
    precision = share(both, sum(not own for _, own in pairs))
    recall = share(both, sum(not right for right, _ in pairs))
    good = both + sum(bool(own) and own[0] in right for right, own in pairs)
    return {
        "nil_precision": precision,
        "nil_recall": recall,
        "nil_f1": f1(precision, recall),
        "accuracy": share(good, len(pairs)),
    }
