"""Targets of a squared error far from size one, of which the model has not learned the size."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History

LARGE = 30.0
"""Of mean and deviation together. Last layers are drawn for outputs of size one, and a step of a thousandth moves a
bias by as much: of 30 it takes thirty thousand."""
SAME = 0.02  # by which loss and mean square may differ
FEWEST = 3  # samples
LEFT = 0.05  # of the targets' mean square, that the error still is


def find(history: History) -> Iterator[Finding]:
    """Compare the loss with the mean square that its gradient would be of, and the targets with size one."""
    loss, error, mean, deviation = (
        history.series(LOSS, what) for what in (LOSS, "square_error", "target_mean", "target_deviation")
    )
    known = np.isfinite(loss) & np.isfinite(error)  # later ones are none where it blows up
    alike = known & (np.abs(np.where(known, loss - error, 0)) <= SAME * np.abs(loss))
    if not alike.any() or alike.sum() < min(FEWEST, known.sum()):
        return
    middle, spread = (float(np.median(series[alike])) for series in (mean, deviation))
    size, off = math.hypot(middle, spread), float(error[alike][-1])
    if not size > LARGE or off < LEFT * size**2:
        return
    yield Finding(
        "the targets are far from size one",
        4.7,
        (LOSS,),
        f"the targets have a mean of {number(middle)} and a standard deviation of {number(spread)}; the model is off "
        f"by {number(math.sqrt(off))}.",
        since=history.steps[0],
        leads="outputs that take thousands of steps to grow, or steps as large as the targets",
        otherwise=f"targets of a size of at most {LARGE:g}",
        margin=size / LARGE,
        remedies=(Remedy("targets of size one", f"y = (y - ({number(middle)})) / {number(max(spread, 1e-12))}"),),
    )
