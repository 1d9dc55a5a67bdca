"""A loss that turns finite outputs into NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import DATA, LOSS, History
from normkit.watching.rules.no_targets import COUNT

NOTHING = "a mean over no target, as where a mask or ignore_index leaves none, "


def find(history: History) -> Iterator[Finding]:
    """Look for a step whose gradient or loss was not finite though data and output were.

    Every step's gradient was looked at; a loss is the mean since the sample before.
    """
    gradient, output, data = (history.first_bad(place) for place in ("gradient", "output", DATA))
    lost = history.was_read(LOSS, LOSS) & ~np.isfinite(history.series(LOSS, LOSS))
    loss = int(np.array(history.steps)[lost][0]) if lost.any() else 0
    step = min((bad for bad in (gradient, loss) if bad), default=0)
    if step and not any(0 < other <= step for other in (output, data)):
        alone = step != gradient
        yield Finding(
            "the loss makes NaN of finite outputs",
            10.5,
            (LOSS,),
            f"{'by' if alone else 'at'} step {step} the data and what the model gives are finite, and the "
            f"{'loss' if alone else 'gradient'} is not: {NOTHING if alone else ''}a logarithm or a root of zero, a "
            "division by zero, or an exponential in the loss.",
            since=step,
            leads="weights of NaN after that step; go back to a checkpoint of before",
            otherwise="a finite loss and gradient wherever data and output are",
            remedies=(
                *((COUNT,) if alone else ()),
                Remedy(
                    "find the line", "torch.autograd.set_detect_anomaly(True)  # names the line of the forward pass"
                ),
                Remedy("a guard", "x = x.clamp(min=1e-12).log()  # and log_softmax instead of log(softmax)"),
            ),
        )
