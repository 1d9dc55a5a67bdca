"""What a normalizer answers: an entry of its vocabulary or none, and what else came into question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normkit.text.decide.nil_decision import NilDecision


class Candidate(NamedTuple):
    """An entry that a mention may mean, its score, and the parts that proposed it."""

    id: str
    score: float
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a text was taken for: ``id`` is None where nothing fits; the candidates are there all the same, best first.

    ``score`` is that of the best candidate, whether it was taken or not; 0 where there is none.
    """

    text: str
    id: str | None
    score: float
    candidates: tuple[Candidate, ...] = ()


Match = Answer  # the name of before, which pickles and scripts have

NIL = "[NIL]"
"""What stands for "none of them" where that is a candidate."""

Decide = Callable[[Sequence[float]], int | None] | NilDecision


def rank(text: str, ids: Sequence[str], scores: np.ndarray, by: Sequence[tuple[str, ...]], decide: Decide) -> Answer:
    """Return the answer of candidates that are given in the order of the vocabulary, which breaks ties.

    Where none of them is a candidate, the last score is of that.
    """
    if isinstance(decide, NilDecision):
        return _of_chances(text, ids, scores, by, decide)
    order = np.argsort(-scores, kind="stable")
    candidates = tuple(Candidate(ids[at], float(scores[at]), by[at]) for at in order)
    place = decide([one.score for one in candidates])
    if place is None:
        return Answer(text, None, candidates[0].score if candidates else 0.0, candidates)
    if not 0 <= place < len(candidates):
        raise ValueError(f"decide must return None or a place below {len(candidates)}, not {place!r}")
    return Answer(text, candidates[place].id, candidates[place].score, candidates)


def _of_chances(
    text: str, ids: Sequence[str], scores: np.ndarray, by: Sequence[tuple[str, ...]], decide: NilDecision
) -> Answer:
    entries = [*ids, NIL] if decide.nil and len(scores) else ids
    chances = decide.ranked(entries, scores.tolist())
    whose = dict(zip(ids, by, strict=True))
    candidates = tuple(Candidate(id, chance, whose[id]) for id, chance in chances if id in whose)
    first = chances[0][0] if chances else None
    return Answer(text, first if first in whose else None, candidates[0].score if candidates else 0.0, candidates)
