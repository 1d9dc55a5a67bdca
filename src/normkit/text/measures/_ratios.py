"""Shares of counts that may be of nothing."""

from __future__ import annotations


def share(part: float, whole: float) -> float:
    """Return part over whole, 0 of nothing."""
    return part / whole if whole else 0.0


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean, 0 where both are 0."""
    return share(2 * precision * recall, precision + recall)
