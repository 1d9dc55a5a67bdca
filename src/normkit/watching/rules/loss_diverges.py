"""A loss that ends above where it began, or loses what it had gained."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, number
from normkit.watching.history import LOSS, History, late_median

FEWEST = 5  # samples
DEVIATION = 1.05  # of a normal law, over the median of the distance of two draws
ABOVE = 0.5
"""Of its size, over the first sample: batches differ by less, and no training is meant to end there."""
GAINED, LOST = 0.2, 0.8
"""Once a fifth of the first loss was gained, losing four fifths of that again is no noise of batches."""
SPREADS = 3.0  # between samples that follow each other: squared distances of a few numbers differ by more than a fifth


def bound(series: np.ndarray) -> float:
    """Return the loss from which on a training has diverged."""
    first, best, noise = series[0], _lowest(series), SPREADS * spread(series)
    if first - best > max(GAINED * abs(first), noise):
        return float(best + LOST * (first - best))
    return float(first + max(ABOVE * abs(first), noise))


def _lowest(series: np.ndarray) -> float:
    """Return the least that the middle one of three samples in a row has come to: a single one may be an easy batch."""
    finite = series[np.isfinite(series)]
    return float(np.min(np.median(np.lib.stride_tricks.sliding_window_view(finite, min(3, len(finite))), axis=1)))


def spread(series: np.ndarray) -> float:
    """Return by how much samples differ from batch to batch, in the half that is calmer.

    >>> spread(np.array([2.0, 1.0, 3.0, 1.0, 2.0, 50.0, 4.0, 90.0]))
    2.1
    """
    halves = [half[np.isfinite(half)] for half in np.array_split(series, 2)]
    steps = [float(np.median(np.abs(np.diff(half)))) for half in halves if len(half) > 1]
    return DEVIATION * min(steps, default=0.0)


NEEDS = Needs("the loss diverges", (LOSS,), samples=FEWEST)


def find(history: History) -> Iterator[Finding]:
    """Compare the last quarter with the first sample and the best."""
    series = history.read(LOSS, LOSS)
    if len(series) < FEWEST or not math.isfinite(series[0]):
        return
    limit, late = bound(series), late_median(series)
    lost = not np.isfinite(series).all()
    if not lost and not late > limit:
        return
    steps = np.array(history.steps)[history.was_read(LOSS, LOSS)]
    since = int(steps[~np.isfinite(series)][0]) if lost else history.since_when(LOSS, LOSS, lambda v: v > limit)
    best = np.nanmin(series)
    yield Finding(
        "the loss diverges",
        4.6,
        (LOSS,),
        f"it began at {number(series[0])}, its best was {number(best)} at step {steps[np.nanargmin(series)]}, and it "
        f"{'is no longer a number' if lost else f'has come to {number(late)}'}.",
        since=since,
        leads="a model that is worse than an untrained one; go back to a checkpoint of before",
        otherwise=f"a loss below {number(limit)} in the last quarter of the samples",
        margin=math.inf if lost else (late - best) / max(limit - best, 1e-30),
    )
