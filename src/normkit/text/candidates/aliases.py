"""Aliases: names that are equal but for case and punctuation, else those that are spelled most alike."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from normkit import check
from normkit.optional import library, require
from normkit.text.candidates._names import NameIndex, Scored, owned
from normkit.text.candidates.alias_normalization import fold

MOST = 200_000  # names that are all compared with a mention


class Aliases:
    """Propose the entries that have a mention as a name, else those whose names are spelled most like it.

    Names are compared as :class:`AliasNormalization` does, letters and digits alone, by rapidfuzz's ratio, every name
    with every mention; above 200,000 names only equal ones are found, and ``report`` says so.

        >>> Aliases().fit({"DEU": ["Germany", "Deutschland"]})(["DEUTSCHLAND!", "Germny"])
        [[('DEU', 1.0)], [('DEU', 0.923...)]]

    Args:
        k: how many names are taken.
        threshold: the least score.
    """

    name = "aliases"

    def __init__(self, k: int = 10, threshold: float = 0.8):
        self.k = check.size(self, "k", k)
        self.threshold = check.number(self, "threshold", threshold, 0.0, 1.0)

    def fit(self, vocabulary: Mapping[str, Sequence[str]]) -> Aliases:
        """Take the names of {id: names}."""
        require("rapidfuzz")
        self._named = NameIndex({id: list(filter(None, map(fold, names))) for id, names in vocabulary.items()})
        self._places = {name: place for place, name in enumerate(self._named.names)}
        return self

    def __call__(self, texts: Sequence[str]) -> list[Scored]:
        """Return [(id, score), ...] for each text, best first."""
        return [self._find(fold(text)) for text in texts]

    def report(self) -> str:
        """What is compared."""
        return "equal names only" if self._many else "every name compared"

    @property
    def _many(self) -> bool:
        return len(self._named.names) > MOST

    def _find(self, text: str) -> Scored:
        if text in self._places:
            return owned(self._named, [self._places[text]], [1.0])
        if not text or self._many:
            return []
        extract, ratio = _rapidfuzz()
        near = extract(text, self._named.names, scorer=ratio, limit=self.k, score_cutoff=100 * self.threshold)
        return owned(self._named, [place for _, _, place in near], [score / 100 for _, score, _ in near])

    def settings(self) -> dict[str, Any]:
        """What it was built with."""
        return {"k": self.k, "threshold": self.threshold}


STEP = Aliases


@functools.cache
def _rapidfuzz() -> tuple[Any, Any]:
    return library("rapidfuzz.process").extract, library("rapidfuzz.fuzz").ratio
