"""A softmax upon a softmax: the loss takes probabilities for scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History, late_median

TIMES = 2  # samples: at equal probabilities both have the same gradient


def find(history: History) -> Iterator[Finding]:
    """Look at the gradient that the output gets, which is that of two softmaxes."""
    twice = history.series(LOSS, "softmax_twice")
    doubled = twice == 1
    late = late_median(twice)
    if doubled.sum() >= TIMES and late > 0.5:
        classes = float(np.nanmax(history.series(LOSS, "classes")))
        least = np.log(np.e + classes - 1) - 1
        yield Finding(
            "the loss takes probabilities for scores",
            4.8,
            (LOSS,),
            "the gradient of the output is that of a softmax upon a softmax: cross entropy has one of its own. So it "
            f"cannot fall below {number(least)} with {classes:.0f} classes.",
            since=history.steps[int(np.argmax(doubled))],
            leads="small gradients and a loss that stands far above zero",
            otherwise="the gradient of the output would be that of one softmax",
            remedies=_remedies(history),
        )


def _remedies(history: History) -> tuple[Remedy, ...]:
    """Take the model's last softmax away, where it is a module."""
    classes = list(history.facts["classes"].items())
    if classes and classes[-1][1] in ("Softmax", "LogSoftmax"):
        return (Remedy("no softmax at the end", f'model.set_submodule("{classes[-1][0]}", nn.Identity())'),)
    return (Remedy("the loss of scores", "loss = F.cross_entropy(scores, y)  # of what the last linear layer gives"),)
