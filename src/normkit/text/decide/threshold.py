"""Threshold: the best candidate, where it is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normkit import check


class Threshold:
    """Take the best candidate if its score is at least a threshold, else none.

    >>> decide = Threshold(0.5)
    >>> decide([0.7, 0.6]), decide([0.4]), decide([])
    (0, None, None)
    """

    def __init__(self, least: float = 0.5):
        self.least = check.number(self, "least", least)

    def __call__(self, scores: Sequence[float]) -> int | None:
        """Return the place of the one that is taken; scores are best first."""
        return 0 if len(scores) and scores[0] >= self.least else None

    def settings(self) -> dict[str, Any]:
        """What it was built with."""
        return {"least": self.least}


STEP = Threshold


AIMS = ("accuracy", "nil_f1")


def best_threshold(
    scores: Sequence[float], right: Sequence[bool], none: Sequence[bool], aim: str = "accuracy"
) -> float:
    """Return the threshold with the best accuracy over all mentions, or F1 of "none", midway between two scores.

    Args:
        scores: of the best candidate of each mention; minus infinity where there is none.
        right: whether that one is right.
        none: whether none would be right.
        aim: which of the two is to be best.

    >>> best_threshold([0.9, 0.8, 0.3, 0.2], [True, True, False, False], [False, False, True, True])
    0.55
    """
    order = np.argsort(-np.asarray(scores, dtype=float), kind="stable")
    ordered = np.asarray(scores, dtype=float)[order]
    right_first = np.concatenate([[0], np.cumsum(np.asarray(right)[order])])  # of the first n, which are taken
    left = np.sum(none) - np.concatenate([[0], np.cumsum(np.asarray(none)[order])])  # of the rest, rightly none
    nil_counts = len(order) - np.arange(len(order) + 1)  # how many are taken for none
    total = right_first + left if aim == "accuracy" else 2 * left / np.maximum(nil_counts + np.sum(none), 1)
    ends = np.concatenate([[True], ordered[:-1] != ordered[1:], [True]]) if len(ordered) else np.array([True])
    at = int(np.flatnonzero(ends & (total == total[ends].max()))[-1])  # of equal ones, that which takes the most
    finite = ordered[np.isfinite(ordered)]
    if not len(finite):
        return 0.5
    if at == 0:
        return float(np.nextafter(finite[0], np.inf))
    if at >= len(finite):
        return float(finite[-1])
    return float((ordered[at - 1] + ordered[at]) / 2)
