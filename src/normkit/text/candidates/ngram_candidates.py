"""N-gram candidates: the names of a vocabulary that share the rarest letters with a mention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text
from normkit.text.candidates._tfidf import TfIdf


@method(
    "ngram-candidates",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275",
    evidence="library",
    shape="",
    example={"min_df": 1},
    provenance="the equations of scispaCy's generator, which the authors wrap, with exact search",
)
class NgramCandidates(Text):
    """Find the ids whose names share the most, and the rarest, triples of letters with a mention.

    For the first stage of entity linking, where mentions are misspelt or inflected forms of the names. A synonym that
    shares no letters is not found: ``candidate-ensemble`` joins these candidates with those of an encoder.

    Names are vectors of tf-idf over triples of characters inside words, each padded by a space, lower case, of unit
    length; a name's score is the cosine with the mention. The k best *names* are taken, of equals the earlier, and an
    id has the score of its best: fewer than k ids may come back. A mention whose triples are all unknown has no
    candidates.

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
        index = TfIdf(names, 3, self.min_df, np.float64)
        hits = index.search(mentions, self.k, self.threshold)
        return [self._ids([(owners[names[at]], score) for at, score in zip(*own, strict=True)]) for own in hits]

    def _ids(self, taken: list[tuple[list[str], float]]) -> list[tuple[str, float]]:
        best: dict[str, float] = {}
        for owners, score in taken:
            for one in owners:
                best.setdefault(one, float(score))
        return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
