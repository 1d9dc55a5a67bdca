"""Names as vectors of tf-idf over their letters, held by letter so that a mention touches only what it shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from normkit.optional import library

AT_ONCE = 256  # mentions that are multiplied together


class TfIdf:
    """The inverted index of names: for each run of letters the names that have it, with their weights.

    The product with a mention is exact, and costs what the mention's own letters occur in, not the size of the whole.
    """

    def __init__(self, names: Sequence[str], n: int, min_df: int, dtype: Any = np.float32):
        self.vectorizer = _vectorizer(n, dtype, min_df=min_df)
        try:
            rows = self.vectorizer.fit_transform(names)
        except ValueError:  # no run of letters is frequent enough
            rows = None
        self.inverted = None if rows is None else rows.T.tocsr()

    def search(self, texts: Sequence[str], k: int, threshold: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each text the places of the k names with the best scores above a threshold, of equals the first."""
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            if self.inverted is None:
                yield from ((np.empty(0, dtype=int), np.empty(0)) for _ in some)
                continue
            scores = self.vectorizer.transform(some) @ self.inverted
            for first, last in zip(scores.indptr, scores.indptr[1:], strict=False):
                yield best(scores.indices[first:last], scores.data[first:last], k, threshold)

    def arrays(self) -> dict[str, np.ndarray]:
        """What it is made anew from, with its features."""
        if self.inverted is None:
            return {}
        own = self.inverted
        return {"data": own.data, "indices": own.indices, "indptr": own.indptr, "idf": self.vectorizer.idf_}

    def features(self) -> list[str]:
        """The runs of letters, in order."""
        return [] if self.inverted is None else self.vectorizer.get_feature_names_out().tolist()

    @classmethod
    def restored(cls, features: Sequence[str], arrays: dict[str, np.ndarray], names: int, n: int) -> TfIdf:
        """Make it anew."""
        index = cls.__new__(cls)
        index.vectorizer, index.inverted = None, None
        if features:
            index.vectorizer = _vectorizer(n, np.float32, vocabulary={one: at for at, one in enumerate(features)})
            index.vectorizer.idf_ = arrays["idf"]
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            index.inverted = library("scipy.sparse").csr_matrix(parts, shape=(len(features), names))
        return index


def _vectorizer(n: int, dtype: Any, **kwargs: Any) -> Any:
    module = library("sklearn.feature_extraction.text")
    return module.TfidfVectorizer(analyzer="char_wb", ngram_range=(n, n), dtype=dtype, **kwargs)


def best(places: np.ndarray, scores: np.ndarray, k: int, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the k places of the largest scores above a threshold, best first, of equals the smallest place."""
    above = scores > threshold
    places, scores = places[above], scores[above]
    if len(scores) > k:
        kept = scores >= np.partition(scores, -k)[-k]
        places, scores = places[kept], scores[kept]
    order = np.lexsort((places, -scores))[:k]
    return places[order], scores[order]
