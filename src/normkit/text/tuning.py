"""Tuning: weights and threshold fitted on some mentions and measured on others."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from normkit import check
from normkit.columns import number_of
from normkit.text.decide.fusion import Fusion
from normkit.text.decide.threshold import AIMS, Threshold, best_threshold
from normkit.text.match import Answer, rank
from normkit.text.measures.evaluation import Evaluation, Gold, as_ids, evaluate

if TYPE_CHECKING:
    from normkit.text.normalizer import Normalizer, Proposed

FEW, FEW_UNLINKABLE = 100, 20


class Mentions:
    """Mentions with all that tuning needs of them, worked out once."""

    def __init__(self, norm: Normalizer, texts: Sequence[str], gold: Sequence[Gold]):
        self.texts, self.gold = list(texts), list(gold)
        proposals = norm.proposed(self.texts)
        self.ids = [own.ids for own in proposals]
        self.scores = [own.table for own in proposals]
        self.by = [own.by for own in proposals]
        self.right = [_right(own, as_ids(one)) for own, one in zip(proposals, gold, strict=True)]
        meant = [as_ids(one) for one in gold]
        self.none = np.array([not one for one in meant], dtype=bool)

    def fit(self, which: np.ndarray) -> Fusion:
        """Fit weights on some."""
        return Fusion.fit([self.scores[at] for at in which], [self.right[at] for at in which])

    def threshold(self, fused: Sequence[np.ndarray], which: np.ndarray, aim: str) -> float:
        """Return the best threshold of some, given the fused scores of all."""
        best = [fused[at].max(initial=-np.inf) for at in which]
        right = [bool(len(fused[at])) and bool(self.right[at][np.argmax(fused[at])]) for at in which]
        return best_threshold(best, right, self.none[which].tolist(), aim)


def _right(own: Proposed, meant: Sequence[str]) -> np.ndarray:
    """Which candidates are meant; where there is a row for none of them, whether that is."""
    right = [id in meant for id in own.ids]
    return np.array(right + [not meant] * (len(own.table) - len(right)), dtype=bool)


def tune(norm: Normalizer, texts: Sequence[str], gold: Sequence[Gold], folds: int, seed: int, aim: str) -> Evaluation:
    """See :meth:`normkit.text.Normalizer.tune`."""
    check.choice(norm, "aim", aim, AIMS)
    check.size(norm, "folds", folds, least=2)
    _check(norm, texts, gold)
    known = Mentions(norm, texts, gold)
    fold_of = split(known.texts, known.none, folds, seed)
    if len({*fold_of}) < 2:
        raise ValueError(f"Normalizer.tune: {len(known.texts)} mentions cannot be fitted on and measured on; give more")
    fused, least = [np.empty(0)] * len(known.texts), np.zeros(len(known.texts))
    for fold in range(folds):
        rest, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        model, threshold = _fit(known, rest, folds, seed, aim)
        for at in held:
            fused[at], least[at] = model(known.scores[at]), threshold
    notes = too_little(known)
    for note in notes:
        warnings.warn(f"Normalizer.tune: {note}", UserWarning, stacklevel=3)
    norm.fusion = known.fit(np.arange(len(known.texts)))
    if isinstance(norm.decide, Threshold):
        norm.decide = Threshold(known.threshold(fused, np.arange(len(known.texts)), aim))
    report = evaluate(_matches(norm, known, fused, least), gold, seed=seed, notes=notes)
    norm.tuned = {"mentions": report.mentions, "unlinkable": report.unlinkable, "measures": dict(report.measures)}
    norm.tuned["seen"] = sorted(_marks(texts, gold))
    return report


def _fit(known: Mentions, which: np.ndarray, folds: int, seed: int, aim: str) -> tuple[Fusion, float]:
    """Fit on some mentions: weights on all of them, the threshold on scores that each got from the others' weights."""
    inner = split([known.texts[at] for at in which], known.none[which], folds, seed + 1)
    fused = [np.empty(0)] * len(known.texts)
    for fold in range(folds):
        if (inner != fold).any() and any(known.right[at].any() for at in which[inner != fold]):
            model = known.fit(which[inner != fold])
            for at in which[inner == fold]:
                fused[at] = model(known.scores[at])
    return known.fit(which), known.threshold(fused, which, aim)


def _matches(norm: Normalizer, known: Mentions, fused: Sequence[np.ndarray], least: np.ndarray) -> list[Answer]:
    """What was said of each mention by those that had not seen it."""
    own: Any = norm.decide
    deciders = [Threshold(float(one)) if isinstance(own, Threshold) else own for one in least]
    return [
        rank(text, ids, scores, by, decide)
        for text, ids, scores, by, decide in zip(known.texts, known.ids, fused, known.by, deciders, strict=True)
    ]


def split(texts: Sequence[str], none: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each mention: the same text in one fold, those without an entry dealt out evenly.

    >>> split(["a", "b", "a", "c", "d"], np.array([False, False, False, True, True]), 2, 0).tolist()
    [0, 1, 0, 0, 1]
    """
    generator = np.random.default_rng(seed)
    fold: dict[str, int] = {}
    for kind in (False, True):
        own = [
            text for text in dict.fromkeys(t for t, n in zip(texts, none, strict=True) if n == kind) if text not in fold
        ]
        for place, at in enumerate(generator.permutation(len(own))):
            fold[own[at]] = place % folds
    return np.array([fold[text] for text in texts], dtype=int)


def too_little(known: Mentions) -> list[str]:
    """What there was too little of to rely on."""
    notes = []
    if len(known.texts) < FEW:
        notes.append(
            f"only {number_of(len(known.texts), 'mention')}: the weights may be chance; {FEW} or more are wanted"
        )
    unlinkable = int(known.none.sum())
    if unlinkable < FEW_UNLINKABLE:
        amount = f"only {number_of(unlinkable, 'mention')}" if unlinkable else "no mention"
        notes.append(f"{amount} without an entry: the threshold may be chance; {FEW_UNLINKABLE} or more are wanted")
    return notes


def too_well(norm: Normalizer, texts: Sequence[str], gold: Sequence[Gold]) -> list[str]:
    """Why mentions measure a normalizer better than it is on others."""
    seen = {*(norm.tuned or {}).get("seen", ())}
    if not texts or not _marks(texts, gold) <= seen:
        return []
    return ["it was tuned on these mentions, so new ones go worse; what tuning printed was measured on held-out ones"]


def beyond(norm: Normalizer, gold: Sequence[Gold]) -> str:
    """Say which ids the vocabulary lacks; nothing where it has all."""
    unknown = sorted({id for one in gold for id in as_ids(one)} - set(norm._fit()))
    if not unknown:
        return ""
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    return f"gold has ids that are not in the vocabulary: {', '.join(map(repr, unknown[:3]))}{more}"


def _marks(texts: Sequence[str], gold: Sequence[Gold]) -> set[str]:
    """A few letters for each mention, by which it is known again."""
    pairs = [repr((text, as_ids(ids))).encode() for text, ids in zip(texts, gold, strict=False)]
    return {hashlib.blake2b(pair, digest_size=6).hexdigest() for pair in pairs}


def _check(norm: Normalizer, texts: Sequence[str], gold: Sequence[Gold]) -> None:
    norm._fit()
    if len(texts) != len(gold):
        raise ValueError(f"gold must be as long as mentions, {len(texts)}, not {len(gold)}")
    if unknown := beyond(norm, gold):
        raise ValueError(f"{unknown}; what has no entry is None")
