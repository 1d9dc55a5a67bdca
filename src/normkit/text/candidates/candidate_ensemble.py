"""Candidate ensemble: what several sources propose, in one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text


class Generator(NamedTuple):
    """How many candidates of a source are taken, from which score on, and what their scores are multiplied by."""

    k: int | None = 1
    threshold: float | None = 0.0
    weight: float = 1.0


@method(
    "candidate-ensemble",
    paper="xMEN: A Modular Toolkit for Cross-Lingual Medical Entity Normalization (Borchert et al., 2023), "
    "arXiv 2310.11275",
    shape="",
    example={"generators": {"ngrams": {"k": 3}, "dense": {"k": 2, "threshold": 0.1, "weight": 0.5}}},
)
class CandidateEnsemble(Text):
    """Join the candidates of several sources, each id with the largest of its weighted scores.

    For entity linking, where sources miss different names.

    Of each source those of at least its threshold, the best k of these, times its weight; the best come first, of equal
    scores the larger id. Scores of different sources are compared as they are.

    Args:
        generators: name of a source -> any of k (1), threshold (0.0, before the weight) and weight (1.0); a k or a
            threshold of None takes all.

    ``method(candidates, top_k=None)``: {name: [(id, score), ...]} gives [(id, score, names that gave it), ...].

    xMEN (Borchert et al., 2023), arXiv 2310.11275.
    """

    calls = {"__call__": ({"ngrams": [["C1", 0.9], ["C2", 0.8]], "dense": [["C2", 0.9], ["C3", 0.1]]},)}

    def __init__(self, generators: Mapping[str, Mapping[str, float | None]]):
        self.generators = generators
        self._settings = {name: self._setting(name, settings) for name, settings in generators.items()}

    def _setting(self, name: str, settings: Mapping[str, float | None]) -> Generator:
        for key in settings:
            check.choice(self, f"setting of generators[{name!r}]", key, Generator._fields)
        generator = Generator(**settings)  # type: ignore[arg-type]
        if generator.k is not None:
            check.size(self, f"k of generators[{name!r}]", generator.k, least=0)
        return generator

    def __call__(
        self, candidates: Mapping[str, Sequence[tuple[str, float]]], top_k: int | None = None
    ) -> list[tuple[str, float, list[str]]]:
        """Return ids with score and the names of their sources, the best first."""
        scores: dict[str, dict[str, float]] = {}
        for name, scored in candidates.items():
            check.choice(self, "name of candidates", name, tuple(self._settings))
            for one, score in self._best_of(name, scored):
                by = scores.setdefault(one, {})
                by[name] = max(score, by.get(name, score))
        merged = [(one, max(by.values()), list(by)) for one, by in scores.items()]
        ordered = sorted(sorted(merged, key=lambda m: m[0]), key=lambda m: m[1])[::-1]
        return ordered if top_k is None else ordered[: check.size(self, "top_k", top_k, least=0)]

    def _best_of(self, name: str, scored: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        k, threshold, weight = self._settings[name]
        high = (pair for pair in scored if threshold is None or pair[1] >= threshold)
        kept = sorted(high, key=lambda pair: -pair[1])
        return [(one, score * weight) for one, score in kept[:k]]
