"""A loss that counts none of the model's outputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History

FEWEST = 2  # samples
COUNT = Remedy("count the targets", "print((y != -100).sum(), y.numel())  # of each batch: those that count, and all")


def find(history: History) -> Iterator[Finding]:
    """Look for outputs and parameters whose gradients are exactly zero at every sample."""
    outputs, counted = (history.series(LOSS, what) for what in ("outputs", "counted"))
    read = ~np.isnan(counted)
    slopes = history.of("gradient").values()
    if read.sum() < FEWEST or counted[read].any() or not slopes or any(np.nan_to_num(s).any() for s in slopes):
        return
    yield Finding(
        "the loss counts none of the outputs",
        10.6,
        (LOSS,),
        f"a step has {number(float(np.median(outputs[read])))} outputs, and at all {read.sum()} samples none gets a "
        "gradient other than zero: no target counts, as where a mask or ignore_index leaves none, or the loss does not "
        "depend on the output.",
        since=history.steps[0],
        leads="a loss that is zero or NaN, and weights that nothing trains",
        otherwise="an output with a gradient other than zero at some sample",
        remedies=(COUNT,),
    )
