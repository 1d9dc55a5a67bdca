"""Fusion: one score of what several parts say, its weights fitted on mentions whose entries are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normkit.optional import library, require


class Fusion:
    """The probability that a candidate is right, by logistic regression over the parts' scores and their lead.

    Scores of different parts do not compare, and none is a probability; a sum of them with fitted weights is the
    simplest thing that is. Of each part it sees the score and how far that is ahead of the best other candidate's, or
    behind it: a score of 0.8 says little where the next has 0.79.
    """

    def __init__(self, weights: Sequence[float] | np.ndarray = (), bias: float = 0.0):
        self.weights, self.bias = np.asarray(weights, dtype=float), float(bias)

    @classmethod
    def fit(cls, tables: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> Fusion:
        """Fit on tables of scores, candidates by parts, one a mention, and which candidates of each are right."""
        require("sklearn")
        rows = np.concatenate([with_leads(table) for table in tables])
        labels = np.concatenate(right)
        if labels.all() or not labels.any():  # nothing to tell apart
            return cls(np.zeros(rows.shape[1]), np.log((labels.sum() + 1) / ((~labels).sum() + 1)))
        mean, spread = rows.mean(0), rows.std(0)
        spread[spread == 0] = 1.0
        model = library("sklearn.linear_model").LogisticRegression(max_iter=1000)
        model.fit((rows - mean) / spread, labels)
        weights = model.coef_[0] / spread
        return cls(weights, model.intercept_[0] - weights @ mean)

    def __call__(self, table: np.ndarray) -> np.ndarray:
        """Return the probability of each candidate."""
        if not len(table):
            return np.empty(0)
        return 1 / (1 + np.exp(-(with_leads(table) @ self.weights + self.bias)))

    def settings(self) -> dict[str, Any]:
        """What was fitted."""
        return {"weights": self.weights.tolist(), "bias": self.bias}


def with_leads(table: np.ndarray) -> np.ndarray:
    """Return scores, and beside them how far each is ahead of the best other candidate's; alone, of nothing.

    >>> with_leads(np.array([[0.9], [0.7], [0.4]])).round(1).tolist()
    [[0.9, 0.2], [0.7, -0.2], [0.4, -0.5]]
    """
    if len(table) < 2:
        return np.concatenate([table, table], 1)
    ordered = np.sort(table, 0)
    best, second = ordered[-1], ordered[-2]
    return np.concatenate([table, np.where(table == best, table - second, table - best)], 1)
