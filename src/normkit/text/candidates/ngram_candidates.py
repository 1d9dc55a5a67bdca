"""N-gram candidates: the names of a vocabulary that share the rarest letters with a mention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

AT_ONCE = 2**22  # scores that are held at a time


@method(
    "ngram-candidates",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275",
    shape="",
    example={"min_df": 1},
    provenance="the equations of scispaCy's generator, which the authors wrap, with exact search",
)
class NgramCandidates(Text):
    """Find the ids whose names share the most, and the rarest, triples of letters with a mention.

    The first stage of entity linking. Names are vectors of tf-idf over triples of characters inside words, each padded
    by a space, lower case, of unit length; a name's score is the cosine with the mention. The k best *names* are taken,
    of equals the earlier, and an id has the score of its best: fewer than k ids may come back. A mention whose triples
    are all unknown has no candidates.

    Args:
        k: how many names are taken.
        min_df: in how many names a triple must be; the default is made for millions, and 1 for a small vocabulary.
        threshold: what scores must be above.

    ``method(concepts, mentions)``: {id: names} and texts; gives [(id, score), ...] for each mention, best first, of
    equals by id. Needs scikit-learn. Code points are taken as they come, but for case.

    xMEN (Borchert et al., 2023), arXiv 2310.11275.
    """

    calls = {"__call__": ({"DEU": ["Germany", "Federal Republic of Germany"], "AUT": ["Austria"]}, ["Germny", "?"])}

    def __init__(self, k: int = 100, min_df: int = 10, threshold: float = 0.0):
        self.k = check.size(self, "k", k)
        self.min_df = check.size(self, "min_df", min_df)
        self.threshold = check.number(self, "threshold", threshold)

    def __call__(self, concepts: Mapping[str, Sequence[str]], mentions: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return ids and scores for each mention."""
        owners: dict[str, list[str]] = {}
        for one, own in concepts.items():
            for name in own:
                owners.setdefault(name, []).append(one)
        names = list(owners)
        index = _indexed(names, self.min_df)
        if index is None or not mentions:
            return [[] for _ in mentions]
        vectorizer, rows = index
        asked = vectorizer.transform(mentions)
        there = np.flatnonzero(np.diff(rows.indptr))
        scores = _scores(asked, rows[there])
        return [
            self._ids([(owners[names[there[at]]], row[at]) for at in self._best(row)]) if known else []
            for row, known in zip(scores, np.diff(asked.indptr), strict=True)
        ]

    def _best(self, row: np.ndarray) -> np.ndarray:
        """The places of the k largest scores, of equals the first."""
        pool = np.flatnonzero(row > self.threshold)
        if len(pool) > self.k:
            least = np.partition(row[pool], -self.k)[-self.k]
            pool = pool[row[pool] >= least]
        return pool[np.argsort(-row[pool], kind="stable")][: self.k]

    def _ids(self, taken: list[tuple[list[str], float]]) -> list[tuple[str, float]]:
        best: dict[str, float] = {}
        for owners, score in taken:
            for one in owners:
                best.setdefault(one, float(score))
        return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))


def _indexed(names: list[str], min_df: int) -> tuple[Any, Any] | None:
    """The vectors of names, or None where no triple is frequent enough."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), min_df=min_df)
    try:
        return vectorizer, vectorizer.fit_transform(names)
    except ValueError:  # an empty vocabulary
        return None


def _scores(asked: Any, rows: Any) -> Iterator[np.ndarray]:
    """The scores of all names, a mention at a time, computed for several together."""
    several = max(1, AT_ONCE // max(rows.shape[0], 1))
    for start in range(0, asked.shape[0], several):
        yield from (asked[start : start + several] @ rows.T).toarray()
