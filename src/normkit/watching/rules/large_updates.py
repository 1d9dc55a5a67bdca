"""Steps that change a good part of a weight at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import Array, History
from normkit.watching.store import Sign

RATIO = 0.1
"""Of a step's length to the weight's. A common aim is a thousandth; at a tenth a weight is another one after ten steps,
and nothing that other layers learned of it holds."""
TIMES = 2
"""Samples: the first step of Adam alone may be large, and a weight that has grown by large steps is moved less by them,
so that the last samples do not tell."""
FROM_ZERO = 0.99  # at the first sample: the weight is its first step, and what starts at zero has to grow
AIM = 0.01  # where the remedy wants to come to
SIGN = Sign("update", RATIO)


def find(history: History) -> Iterator[Finding]:
    """Look at matrices; biases and gains start at zero, and vectors move quickly by nature."""
    shapes = history.facts["shapes"]
    often = {n: _often(series) for n, series in history.of("update").items() if len(shapes.get(n, [])) > 1}
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
            since=history.steps[int(np.argmax(high))],
            leads="a loss that jumps or stands still, and dead units",
            remedies=(Remedy("a lower rate", f'for group in optimizer.param_groups: group["lr"] /= {number(factor)}'),),
        )


def _often(series: Array) -> float:
    """What the ratio reaches at several samples, of a weight that did not start at zero."""
    there = series[~np.isnan(series)]
    if len(there) and there[0] > FROM_ZERO:
        return 0.0
    there = np.sort(there)
    return float(there[-TIMES]) if len(there) >= TIMES else 0.0
