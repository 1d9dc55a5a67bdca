"""A learning rate by which the weights hardly move, and a loss that hardly falls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History, late_median
from normkit.watching.rules import no_gradient
from normkit.watching.trials import LOSS_AFTER_STEPS

RATIO = 2e-4  # of a step's length to the weight's, the median of the matrices: a fifth of the common aim
MOVED = 0.05  # of the weights' length, if all steps so far went the same way
FALLEN = 0.1  # of the first loss
FEWEST, STEPS = 6, 40  # samples and steps: before that the loss need not have fallen
AIM = 1e-3  # where the remedy wants to come to
NEEDS = Needs("the learning rate is too low", (LOSS, "update"), FEWEST, STEPS)
TRIAL = LOSS_AFTER_STEPS


def find(history: History) -> Iterator[Finding]:
    """Ask for both: short steps of all matrices, and a loss that is near where it began."""
    series = history.read(LOSS, LOSS)
    if len(series) < FEWEST or history.steps[-1] < STEPS or not np.isfinite(series).all():
        return
    every, still = _late_steps(history), {name for finding in no_gradient.find(history) for name in finding.where}
    late = {name: ratio for name, ratio in every.items() if name not in still}
    if 2 * len(late) < len(every):
        return  # most get no gradient, which is why they do not move
    if not late or late_median(series) < (1 - FALLEN) * series[0]:
        return
    middle = float(np.median(list(late.values())))
    reach = float(np.nanmax([np.nanmean(history.series(name, "update")) for name in late]))  # early long steps count
    steps = history.steps[-1]
    if not 0 < middle < RATIO or reach * steps > MOVED:
        return
    rates = [float(rate) for name in late for rate in history.rates(name)[-1:] if rate > 0]
    if not rates:
        return
    factor = 10 ** max(1, round(math.log10(AIM / middle)))
    yield Finding(
        "the learning rate is too low",
        3.7,
        tuple(sorted(late, key=lambda name: late[name])),
        f"a step at a rate of {number(max(rates))} moves a matrix by {number(middle)} of its length, the median of "
        f"{len(late)}; after {steps} steps the loss is {number(late_median(series))}, where it began at "
        f"{number(series[0])}.",
        since=history.steps[0],
        leads="a training that costs time and learns nothing",
        otherwise=f"steps of more than {number(RATIO)} of a weight, or a loss that has fallen by {FALLEN:.0%}",
        margin=RATIO / middle,
        remedies=(Remedy("a higher rate", f'for group in optimizer.param_groups: group["lr"] *= {number(factor)}'),),
    )


def _late_steps(history: History) -> dict[str, float]:
    """The late steps of the matrices, as shares of their lengths."""
    shapes = history.facts["shapes"]
    return {n: r for n, r in history.late("update").items() if len(shapes.get(n, [])) > 1 and math.isfinite(r)}
