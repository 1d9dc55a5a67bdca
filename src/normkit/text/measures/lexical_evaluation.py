"""Lexical evaluation: how many words a normalizer mended, and how many it broke."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normkit.catalog import method
from normkit.kinds import Text
from normkit.text.measures._ratios import f1, share

Sentences = Sequence[Sequence[str]]


@method(
    "lexical-evaluation",
    paper="MultiLexNorm: A Shared Task on Multilingual Lexical Normalization (van der Goot et al., 2021)",
    shape="",
)
class LexicalEvaluation(Text):
    """Compare words as they were written, as they should be, and as they were normalized.

    For judging a normalizer of words, as of social media, on words that are aligned one to one; it is the measure of
    MultiLexNorm. Sentences that are rewritten freely do not align, and need another measure.

    Over all words, of which leave_as_is needed no change,

        error_reduction = (accuracy - leave_as_is) / (1 - leave_as_is)

    is 1 for a perfect normalizer, 0 for one that does nothing, negative for one that does harm, and -infinity where no
    word needed a change. A wrong form of a word that needed one is a false negative only: precision is generous.

    ``method(raw, gold, predicted)``: three lists of sentences, each a list of words, compared code point by code point;
    the shared task lowers the case of most languages before. Gives leave_as_is, accuracy, error_reduction, precision,
    recall, f1, and the places [sentence, word] of false_positives and false_negatives.

    MultiLexNorm (van der Goot et al., 2021).
    """

    calls = {"__call__": ([["u", "r", "new"]], [["you", "are", "new"]], [["you", "r", "new"]])}

    def __call__(self, raw: Sentences, gold: Sentences, predicted: Sentences) -> dict[str, Any]:
        """Return the measures by name."""
        self._check(raw, gold, predicted)
        words = [
            ([s, w], *forms)
            for s, sentence in enumerate(zip(raw, gold, predicted, strict=True))
            for w, forms in enumerate(zip(*sentence, strict=True))
        ]
        kept = share(sum(r == g for _, r, g, _ in words), len(words))
        accuracy = share(sum(g == p for _, _, g, p in words), len(words))
        mended = sum(r != g == p for _, r, g, p in words)
        broken = [at for at, r, g, p in words if r == g != p]
        missed = [at for at, r, g, p in words if r != g != p]
        precision, recall = share(mended, mended + len(broken)), share(mended, mended + len(missed))
        return {
            "leave_as_is": kept,
            "accuracy": accuracy,
            "error_reduction": (accuracy - kept) / (1 - kept) if kept < 1 else -math.inf,
            "precision": precision,
            "recall": recall,
            "f1": f1(precision, recall),
            "false_positives": broken,
            "false_negatives": missed,
        }

    def _check(self, raw: Sentences, gold: Sentences, predicted: Sentences) -> None:
        for name, other in (("gold", gold), ("predicted", predicted)):
            lengths, own = [len(s) for s in raw], [len(s) for s in other]
            if lengths != own:
                at = next((i for i, (a, b) in enumerate(zip(lengths, own, strict=False)) if a != b), len(own))
                raise ValueError(f"LexicalEvaluation: {name} must have the words of raw; sentence {at} differs")
