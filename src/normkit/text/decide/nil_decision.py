"""NIL decision: candidates in the order of their probability, or none of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normkit.catalog import method
from normkit.kinds import Text


@method(
    "nil-decision",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275",
    shape="",
)
class NilDecision(Text):
    """Sort a mention's candidates by softmax of their logits; the last place may stand for none of them.

    For entity linking with a cross-encoder, where a mention may have no entry.

    Where the place of "none" is the likeliest nothing is returned; elsewhere it stays in the list, its id None. Its
    candidate, the lowest ranked before, is lost even where it was right. Probabilities are over one mention's
    candidates and do not compare across mentions. A :class:`Normalizer` that it decides for puts ``"[NIL]"`` in that
    place, so that no candidate is lost.

    Args:
        nil: whether the last place is that of "none".
        allow_nil: False: that place keeps its id, and gets probability 0.

    ``method(ids, logits)`` gives [(id, probability), ...], best first, of equals the earlier; ``ranked(ids, logits)``
    the same where none is likeliest too. ``spread(keys, ranked)``: of equal keys in a row, each next one gets its list
    without one more of its first entries.

    xMEN (Borchert et al., 2023), arXiv 2310.11275.
    """

    calls = {
        "__call__": (["C1", "C2", "C3"], [2.0, 1.0, 0.0]),
        "ranked": (["C1", "C2", "C3"], [0.0, 1.0, 2.0]),
        "spread": ([[0, "fever"], [0, "fever"], [9, "flu"]], [["C1", "C2"], ["C1", "C2"], ["C4"]]),
    }

    def __init__(self, nil: bool = True, allow_nil: bool = True):
        self.nil, self.allow_nil = nil, allow_nil

    def __call__(self, ids: Sequence[str], logits: Sequence[float]) -> list[tuple[str | None, float]]:
        """Return ids with probability; nothing for none."""
        ordered = self.ranked(ids, logits)
        return [] if ordered and ordered[0][0] is None else ordered

    def ranked(self, ids: Sequence[str], logits: Sequence[float]) -> list[tuple[str | None, float]]:
        """Return ids with probability, None for none of them."""
        if len(ids) != len(logits):
            raise ValueError(f"NilDecision: ids and logits must be of one length, not {len(ids)} and {len(logits)}")
        chances: list[tuple[str | None, float]] = list(zip(ids, _softmax(logits), strict=True))
        if chances and self.nil:
            chances[-1] = (None, chances[-1][1]) if self.allow_nil else (ids[-1], 0.0)
        return sorted(chances, key=lambda pair: -pair[1])

    def spread(self, keys: Sequence[Any], ranked: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the lists of a mention that is annotated several times in a row, each without those before it."""
        if len(keys) != len(ranked):
            raise ValueError(f"NilDecision: keys and ranked must be of one length, not {len(keys)} and {len(ranked)}")
        lists, again = [], 0
        for place, (key, own) in enumerate(zip(keys, ranked, strict=True)):
            again = again + 1 if place and keys[place - 1] == key else 0
            lists.append(list(own[again:]))
        return lists


def _softmax(logits: Sequence[float]) -> list[float]:
    most = max(logits, default=0.0)
    powers = [math.exp(logit - most) for logit in logits]
    whole = sum(powers)
    return [power / whole for power in powers]
