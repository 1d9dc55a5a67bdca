"""Spelling: how much a mention and the names of a candidate are written alike."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from normkit import check
from normkit.optional import library, require

MEASURES = {
    "edits": ("rapidfuzz.distance", "DamerauLevenshtein.normalized_similarity", 1.0),
    "beginning": ("rapidfuzz.distance", "JaroWinkler.normalized_similarity", 1.0),
    "letters": ("rapidfuzz.fuzz", "ratio", 100.0),
    "words": ("rapidfuzz.fuzz", "token_sort_ratio", 100.0),
    "shared-words": ("rapidfuzz.fuzz", "token_set_ratio", 100.0),
    "part": ("rapidfuzz.fuzz", "partial_ratio", 100.0),
    "weighted": ("rapidfuzz.fuzz", "WRatio", 100.0),
}


class Spelling:
    """Score each candidate by its name that is written most like the mention, from 0 to 1.

        >>> Spelling("edits")("germny", [["germany", "deutschland"], ["guernsey"]]).round(2).tolist()
        [0.86, 0.5]

    Args:
        by: one of rapidfuzz's measures. ``"edits"`` is Damerau's and Levenshtein's (letters put in, left out, changed
            or swapped), ``"beginning"`` Jaro's and Winkler's, ``"letters"`` the ratio. ``"words"`` takes the same in
            any order, ``"shared-words"`` those that both have, ``"part"`` the best place in the longer. ``"weighted"``
            (WRatio) mixes these.
    """

    def __init__(self, by: str = "edits"):
        self.by = check.choice(self, "by", by, tuple(MEASURES))
        self.name = by
        require("rapidfuzz")

    def __call__(self, text: str, names: Sequence[Sequence[str]]) -> np.ndarray:
        """Return a score for each candidate, given by its names; one without names gets 0."""
        flat = [name for own in names for name in own]
        if not flat:
            return np.zeros(len(names))
        compare, scorer, whole = measure(self.by)
        scores = compare([text], flat, scorer=scorer, dtype=np.float64)[0] / whole
        return best(scores, names)

    def settings(self) -> dict[str, Any]:
        """What it was built with."""
        return {"by": self.by}


STEP = Spelling


def best(scores: np.ndarray, names: Sequence[Sequence[str]], without: float = 0.0) -> np.ndarray:
    """Return the best score of each candidate's names, given the scores of all names in a row.

    >>> best(np.array([0.5, 0.7, 0.2]), [["a", "b"], [], ["c"]])
    array([0.7, 0. , 0.2])
    """
    sizes = [len(own) for own in names]
    maxima = np.where(np.array(sizes, bool), -np.inf, without)
    np.maximum.at(maxima, np.repeat(np.arange(len(names)), sizes), scores)
    return maxima


@functools.cache
def measure(by: str) -> tuple[Callable[..., Any], Callable[..., float], float]:
    """Return what compares many names, rapidfuzz's measure, and what that calls the whole."""
    module, name, whole = MEASURES[by]
    return library("rapidfuzz.process").cdist, operator.attrgetter(name)(library(module)), whole
