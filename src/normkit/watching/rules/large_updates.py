"""Steps that change a good part of a weight at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, Array, History, late_median
from normkit.watching.store import Sign
from normkit.watching.trials import LOSS_AFTER_STEPS

RATIO = 0.1
"""Of a step's length to the weight's. A common aim is a thousandth; at a tenth a weight is another one after ten steps,
and nothing that other layers learned of it holds."""
TIMES = 2
"""Samples: the first step of Adam alone may be large, and a weight that has grown by large steps is moved less by them,
so that the last samples do not tell."""
LEARNED, FALLEN = 0.7, 0.9
"""Of what guessing gives, or else of the first loss, and of the first loss: a training that comes below both bears its
steps, as weights before norms do. The entropy of texts leaves much of a loss: of healthy language models up to 0.67."""
FROM_ZERO = 0.99  # at the first sample: the weight is its first step, and what starts at zero has to grow
DRAWN = 1e-4  # the size of an entry from which on it did not start at zero
AIM = 0.01  # where the remedy wants to come to
SIGN = Sign("update", RATIO)
NEEDS = Needs("steps are too large", ("update",), samples=TIMES)
TRIAL = LOSS_AFTER_STEPS._replace(against="on one batch long steps may win all the same; compare held-out losses")


def find(history: History) -> Iterator[Finding]:
    """Look at matrices; biases and gains start at zero, and vectors move quickly by nature."""
    if learns(history):
        return
    often = ratios(history)
    order = sorted((name for name, ratio in often.items() if ratio > RATIO), key=lambda name: -often[name])
    if order:
        worst = order[0]
        factor = 10 ** math.ceil(math.log10(often[worst] / AIM))
        high = history.series(worst, "update") > RATIO
        yield Finding(
            "steps are too large",
            4.0,
            tuple(order),
            f"{high.sum()} of {len(high)} sampled steps change {worst} by {often[worst]:.0%} of its length and more; "
            f"{len(order)} of {len(often)} matrices have steps of more than {RATIO:.0%}.",
            since=first_step(history, worst),
            leads="a loss that jumps or stands still, and dead units",
            otherwise=f"steps of at most {RATIO:.0%}, or a loss that falls well in spite of them",
            margin=often[worst] / RATIO,
            remedies=(Remedy("a lower rate", f'for group in optimizer.param_groups: group["lr"] /= {number(factor)}'),),
        )


def learns(history: History) -> bool:
    """Whether the loss has come below where it began, and well below what guessing gives where that is known."""
    loss, classes = history.series(LOSS, LOSS), history.series(LOSS, "classes")
    losses = loss[~np.isnan(loss)]
    if not len(losses):
        return False
    guessing = math.log(np.nanmax(classes)) if (~np.isnan(classes)).any() else float(losses[0])
    return late_median(loss) < min(LEARNED * guessing, FALLEN * float(losses[0]))


def ratios(history: History, times: int = TIMES, among: int | None = None) -> dict[str, float]:
    """Return what the ratio of each matrix reaches at so many of the first samples; one that started at zero has 0."""
    shapes = history.facts["shapes"]
    updates = {n: series[:among] for n, series in history.of("update").items() if len(shapes.get(n, [])) > 1}
    return {n: 0.0 if _from_zero(history, n) else _often(series, times) for n, series in updates.items()}


def first_step(history: History, name: str) -> int:
    """Return the first step that was too large for a matrix which has had some."""
    return history.steps[int(np.argmax(history.series(name, "update") > RATIO))]


def _from_zero(history: History, name: str) -> bool:
    """Whether a weight is its own first step; by entries of what was read before that step, where it was.

    Behind a layer of zeros, as in adaLN-Zero, it stays zero at the first step, and its own comes between two samples.
    """
    first, size = (history.series(name, what)[:1] for what in ("update", "weight"))
    entry = size / math.sqrt(math.prod(history.facts["shapes"][name]))
    return bool((((first > FROM_ZERO) & ~(entry > DRAWN)) | ((first == 0) & (entry <= DRAWN))).any())


def _often(series: Array, times: int) -> float:
    samples = np.sort(series[np.isfinite(series)])
    return float(samples[-times]) if len(samples) >= times else 0.0
