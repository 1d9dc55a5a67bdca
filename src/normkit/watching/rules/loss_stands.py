"""A loss that does not fall, or has stopped at the loss of guessing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, number
from normkit.watching.history import LOSS, Array, History, late_median
from normkit.watching.rules import loss_diverges

FEWEST, STEPS = 8, 40  # samples and steps: before that it need not have fallen
FALLEN = 0.05
"""Of the first loss: healthy trainings of 40 steps were at more than twice as much."""
NEAR, FLAT = 0.04, 0.03
"""Of the logarithm of the number of classes, and of the loss between the last quarter and the one before."""
LITTLE = 0.1  # of what equal probabilities give
NEEDS = Needs("the loss falls", (LOSS,), FEWEST, STEPS)


def find(history: History) -> Iterator[Finding]:
    """Compare the last quarter with the first sample, and with what equal probabilities give."""
    series = history.read(LOSS, LOSS)
    if len(series) < FEWEST or history.steps[-1] < STEPS or not np.isfinite(series).all():
        return
    first, late, chance = series[0], late_median(series), guessing(history)
    if late > loss_diverges.bound(series):
        return
    stuck = np.min(series) > first - FALLEN * abs(first)
    guesses = chance is not None and abs(late - chance) < NEAR * chance and _is_flat(series)
    if stuck or guesses:
        note = f"; equal probabilities of its {round(math.exp(chance))} outputs give {number(chance)}" if chance else ""
        yield Finding(
            "the loss does not fall",
            2.7,
            (LOSS,),
            f"it began at {number(first)} and stands at {number(late)} after {history.steps[-1]} steps{note}.",
            leads="a training that costs time and learns nothing",
            otherwise=f"a loss that has fallen by {FALLEN:.0%} of where it began, and lies apart from guessing",
            margin=1.5 if not stuck else 2.0 if guesses else FALLEN * abs(first) / max(first - np.min(series), 1e-30),
        )


def guessing(history: History) -> float | None:
    """Return the cross entropy of equal probabilities over the classes, or else over the last matrix's outputs.

    Of a model that is frozen in parts the last matrix that is trained need not be the last.
    """
    classes = history.series(LOSS, "classes")
    if (classes > 1).any():
        return math.log(np.nanmax(classes))
    matrices = [shape for shape in history.facts["shapes"].values() if len(shape) > 1]
    known = matrices and matrices[-1][0] > 1 and not history.facts.get("frozen")
    return math.log(matrices[-1][0]) if known else None


def little(history: History) -> float:
    """Return the loss below which a cross entropy is nearly none, 0 of another loss: few samples make it."""
    classes = history.series(LOSS, "classes")
    return LITTLE * math.log(np.nanmax(classes)) if (classes > 1).any() else 0.0


def _is_flat(series: Array) -> bool:
    late, before = late_median(series), late_median(series[: -(len(series) // 4)])
    return bool(abs(late - before) < FLAT * abs(before))
