"""Alias normalization: a name as it was written, brought to the canonical one of a vocabulary."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

Answer = tuple[str | None, float, str]


@method(
    "alias-normalization",
    paper="D2S-FLOW: Automated Parameter Extraction from Datasheets for SPICE Model Generation Using Large Language "
    "Models (Chen et al., 2025), arXiv 2502.16540",
    evidence="abstract",
    shape="",
    example={"vocabulary": {"Rds(on)": ["drain-source résistance"], "Ciss": ["input capacitance", "C iss"]}},
    provenance="the paper prompts a language model and publishes neither code nor prompts; this is what needs none",
)
class AliasNormalization(Text):
    """Bring each name to the canonical name that it equals, that it is an alias of, or that is spelled most like it.

    For names of parts, parameters and sections, so that a search that failed can be tried again.

    Names are compared folded: NFKC, without case, letters and digits alone. The score of what is neither a canonical
    name nor an alias is

        2 LCS(a, b) / (|a| + |b|)          LCS the longest common subsequence

    Folding makes one of "C iss" and "Ciss", but also of "I+" and "I-". Short symbols are a letter apart: for those take
    a high threshold.

    Args:
        vocabulary: canonical name -> aliases; of equal names the first entry's counts.
        threshold: the least score of what is spelled alike.

    ``method(texts)`` gives for each (canonical name or None, score, how), how one of exact, alias, fuzzy, none.

    D2S-FLOW (2025).
    """

    form = "NFKC"
    calls = {"__call__": (["RDS(ON)", "C ISS", "drain source resistence", "leakage"],)}

    def __init__(self, vocabulary: Mapping[str, Sequence[str]], threshold: float = 0.8):
        self.vocabulary = vocabulary
        self.threshold = check.number(self, "threshold", threshold, 0.0, 1.0)
        self._canonical: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._all: dict[str, str] = {}
        for name, aliases in vocabulary.items():
            self._canonical.setdefault(fold(name), name)
            for alias in aliases:
                self._aliases.setdefault(fold(alias), name)
            for known in (name, *aliases):
                self._all.setdefault(fold(known), name)

    def __call__(self, texts: Sequence[str]) -> list[Answer]:
        """Return what was found for each text."""
        return [self._find(fold(text)) for text in texts]

    def _find(self, text: str) -> Answer:
        if text and text in self._canonical:
            return self._canonical[text], 1.0, "exact"
        if text and text in self._aliases:
            return self._aliases[text], 1.0, "alias"
        near, best = max(
            ((known, ratio(text, known)) for known in self._all), key=lambda pair: pair[1], default=("", 0)
        )
        if text and self._all and best >= self.threshold:
            return self._all[near], best, "fuzzy"
        return None, float(best), "none"


def fold(text: str) -> str:
    """Return a name as it is compared."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def ratio(a: str, b: str) -> float:
    """Return twice the length of the longest common subsequence over both lengths, 1 of two empty texts.

    >>> ratio("abcd", "abd")
    0.8571428571428571
    """
    if not a and not b:
        return 1.0
    places: dict[str, int] = {}
    for i, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << i
    row = whole = (1 << len(a)) - 1  # a bit is cleared where the subsequence grows (Hyyrö, 2004)
    for letter in b:
        hits = row & places.get(letter, 0)
        row = (row + hits | row - hits) & whole
    return 2 * (len(a) - row.bit_count()) / (len(a) + len(b))
