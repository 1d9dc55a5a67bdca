"""Gradients that vanish on their way to the first layers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

FEWEST = 4
RATIO = 1e3
"""Of the last block's gradient to the first's. Healthy trainings stay far below; at 1000 plain descent moves the
first layers a thousand times slower, and the smallest entries leave float16's range."""


def find(history: History) -> Iterator[Finding]:
    """Compare the gradients of the first and the last block."""
    by_block = gradients_by_block(history)
    if len(by_block) < FEWEST:
        return
    (first, low), (last, high) = next(iter(by_block.items())), list(by_block.items())[-1]
    if 0 < RATIO * low < high:
        yield Finding(
            "gradients vanish towards the input",
            4.0 + math.log10(high / low) / 10,
            (first,),
            f"{first} has a gradient of {number(low)}, {last} one of {number(high)}, {number(high / low)} times as "
            "much.",
            leads="the first layers stay as they were drawn",
            remedies=(
                Remedy("batchnorm", "before each activation function: nk.BatchNorm(width)"),
                Remedy("a function that does not shrink", "nn.ReLU() for nn.Sigmoid()"),
            ),
        )


def gradients_by_block(history: History) -> dict[str, float]:
    """Return the length of each block's gradient, in order of depth."""
    late = history.late("gradient")
    found = {}
    for block in history.facts["blocks"]:
        own = [value for name, value in late.items() if name.startswith(f"{block}.") and math.isfinite(value)]
        if own:
            found[block] = math.sqrt(sum(value**2 for value in own))
    return found
