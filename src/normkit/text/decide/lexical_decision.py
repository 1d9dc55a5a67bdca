"""Lexical decision: a word's normal form among what a model proposes, or the word as it is."""

from __future__ import annotations

from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

KEEP = ("symbols", "nothing")


@method(
    "lexical-decision",
    paper="ÚFAL at MultiLexNorm 2021: Improving Multilingual Lexical Normalization by Fine-tuning ByT5 "
    "(Samuel and Straka, 2021)",
    shape="",
)
class LexicalDecision(Text):
    """Take the likeliest form of a word that a model proposes, and leave numbers and symbols as they are.

    For lexical normalization with the beams of a sequence-to-sequence model.

    The score of a candidate that is the word itself is multiplied by the bias; the largest score wins, of equals the
    first. Scores are log-probabilities: a bias *above* 1 makes it *less* likely that the word stays.

    Args:
        keep: ``"symbols"`` leaves alone what has several characters, all digits, and what has other characters than
            letters, digits and straight apostrophes; ``"nothing"`` asks the model for all.
        bias: what the word's own score is multiplied by.

    ``method(word, candidates)``: candidates (text, log-probability), at least one. Code points are taken as they come.

    ÚFAL at MultiLexNorm 2021 (Samuel and Straka, 2021).
    """

    calls = {"__call__": ("u", [["you", -0.1], ["u", -0.3]])}

    def __init__(self, keep: str = "symbols", bias: float = 1.0):
        self.keep = check.choice(self, "keep", keep, KEEP)
        self.bias = check.number(self, "bias", bias)

    def __call__(self, word: str, candidates: Sequence[tuple[str, float]]) -> str:
        """Return the normal form."""
        if self.keep == "symbols" and _stays(word):
            return word
        if not candidates:
            raise ValueError("LexicalDecision: candidates must be at least one")
        return max(candidates, key=lambda c: c[1] * self.bias if c[0] == word else c[1])[0]


def _stays(word: str) -> bool:
    return (len(word) > 1 and word.isdigit()) or not word.replace("'", "").isalnum()
