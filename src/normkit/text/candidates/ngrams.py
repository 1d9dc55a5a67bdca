"""N-grams: names that share the rarest runs of letters with a mention, found fast among a million."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normkit import check
from normkit.text.candidates._names import NameIndex, Scored, owned
from normkit.text.candidates._tfidf import TfIdf


class NGrams:
    """Propose the entries whose names share the most, and the rarest, runs of letters with a mention.

    The part of a :class:`Normalizer` that :class:`NgramCandidates` is the paper's form of: fitted once, float32, of
    equal scores the entry that is earlier in the vocabulary. Search is exact at every size: a mention is multiplied
    with the names that share letters with it, and with no others.

        >>> part = NGrams(k=2).fit({"DEU": ["germany"], "AUT": ["austria"], "AUS": ["australia"]})
        >>> [[id for id, _ in found] for found in part(["germny", "austra"])]
        [['DEU'], ['AUS', 'AUT']]

    Args:
        k: how many names are taken.
        n: how many letters are a run; words are padded by a space.
        min_df: in how many names a run must be.
        threshold: what scores must be above.
    """

    name = "ngrams"

    def __init__(self, k: int = 32, n: int = 3, min_df: int = 1, threshold: float = 0.0):
        self.k = check.size(self, "k", k)
        self.n = check.size(self, "n", n)
        self.min_df = check.size(self, "min_df", min_df)
        self.threshold = check.number(self, "threshold", threshold)

    def fit(self, vocabulary: Mapping[str, Sequence[str]]) -> NGrams:
        """Index the names of {id: names}."""
        self._named = NameIndex(vocabulary)
        self._index = TfIdf(self._named.names, self.n, self.min_df)
        return self

    def __call__(self, texts: Sequence[str]) -> list[Scored]:
        """Return [(id, score), ...] for each text, best first."""
        hits = self._index.search(texts, self.k, self.threshold)
        return [owned(self._named, places, scores) for places, scores in hits]

    def report(self) -> str:
        """How it searches."""
        return "every name compared that shares letters"

    def settings(self) -> dict[str, Any]:
        """What it was built with."""
        return {"k": self.k, "n": self.n, "min_df": self.min_df, "threshold": self.threshold}

    def arrays(self) -> dict[str, np.ndarray]:
        """What it found, to be saved."""
        features = self._index.features()
        letters = np.frombuffer("".join(features).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        return {**self._index.arrays(), "letters": letters, "lengths": np.array(list(map(len, features)), dtype=int)}

    def restore(self, vocabulary: Mapping[str, Sequence[str]], arrays: dict[str, np.ndarray]) -> NGrams:
        """Take what was saved, in the place of a fit."""
        letters = arrays["letters"].astype(np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
        lengths = arrays.get("lengths", np.full(len(arrays.get("idf", ())), self.n))
        if lengths.sum() != len(letters):  # a word of fewer letters is a shorter run, whose length was not saved once
            return self.fit(vocabulary)
        self._named = NameIndex(vocabulary)
        spans = zip(lengths.cumsum().tolist(), lengths.tolist(), strict=True)
        features = [letters[end - length : end] for end, length in spans]
        self._index = TfIdf.restored(features, arrays, len(self._named.names), self.n)
        return self


STEP = NGrams
