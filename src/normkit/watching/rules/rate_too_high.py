"""A learning rate whose steps are too large for the weights, and did harm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching import proposals
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History, late_median
from normkit.watching.rules import dead_units, large_updates, loss_diverges, loss_stands, not_a_number
from normkit.watching.trials import LOSS_AFTER_STEPS

SHARE = 0.25
"""Of the matrices: a single one with long steps has a rate, or a start, of its own, and that is another finding."""
HALF = 0.5  # of a matrix: one that is moved so far, time and again, takes a loss along
GROWN = 10.0  # times what blocks gave at the first sample; healthy trainings stay below five
NEEDS = Needs("the learning rate is too high", ("update", LOSS), samples=large_updates.TIMES)
TRIAL = LOSS_AFTER_STEPS._replace(
    against="the weights are too far off to come back: begin anew, or from a checkpoint, with the lower rate"
)


def find(history: History) -> Iterator[Finding]:
    """Ask for both: long steps of many matrices, and harm that came after the first of them.

    Long steps alone may be meant, and a loss that stands still alone has other causes as well. One sample of them does
    where numbers were lost, and where it is the first before a loss that diverged, or units that died and nothing that
    was learned: large weights hide the steps behind it.
    """
    lost = [finding.since for finding in not_a_number.find(history)]
    ratios = large_updates.ratios(history, 1 if lost else large_updates.TIMES)
    long, diverged = _long(ratios), bool([*loss_diverges.find(history)])
    begin = min(history.steps, default=0)
    if not long and (diverged or (_died(history, begin) and not large_updates.learns(history))):
        ratios = large_updates.ratios(history, times=1, among=1)
        long = _long(ratios)
    if not long:
        return
    if len(long) < SHARE * len(ratios) and not (diverged and ratios[long[0]] > HALF):
        return
    since = min(large_updates.first_step(history, name) for name in long)
    harm = [*_harm(history, since, diverged), *("numbers overflowed" for step in lost if (step or 0) > since)]
    if not harm:
        return
    rate, kind = max(proposals.largest_rate(history, name) for name in long), _optimizer(history, long[0])
    lower = 10 ** math.ceil(math.log10(max(ratios[long[0]] / large_updates.AIM, 10)))
    yield Finding(
        "the learning rate is too high",
        6.0,
        tuple(long),
        f"steps of {kind} at a rate of {number(rate)} changed {len(long)} of {len(ratios)} matrices by more than "
        f"{large_updates.RATIO:.0%} of their length, {long[0]} by {ratios[long[0]]:.0%}; {' and '.join(harm)}.",
        since=since,
        leads="all that is named below it",
        otherwise=f"steps of at most {large_updates.RATIO:.0%} of a weight, or no harm after them",
        margin=ratios[long[0]] / large_updates.RATIO,
        remedies=(Remedy("a lower rate", f'for group in optimizer.param_groups: group["lr"] /= {number(lower)}'),),
    )


def _long(ratios: dict[str, float]) -> list[str]:
    return sorted((n for n, ratio in ratios.items() if ratio > large_updates.RATIO), key=lambda n: -ratios[n])


def _died(history: History, since: int) -> bool:
    """Whether units died after a step."""
    return any((dead.since or 0) > since for dead in dead_units.find(history))


def _harm(history: History, since: int, diverged: bool) -> Iterator[str]:
    """Name what went wrong after a step."""
    if diverged:
        yield "the loss diverged"
    elif [*loss_stands.find(history)]:
        yield f"the loss stands at {number(late_median(history.series(LOSS, LOSS)))}"
    if _died(history, since):
        yield "units died after the first of them"
    if large_updates.learns(history):
        return
    grown = [name for name in history.facts["blocks"] if _growth(history, name) > GROWN]
    if grown:
        yield f"what {grown[-1]} gives grew {number(_growth(history, grown[-1]))}x"


def _growth(history: History, name: str) -> float:
    sizes = history.series(name, "rms")
    samples = sizes[~np.isnan(sizes)]
    return late_median(sizes) / max(float(samples[0]), 1e-30) if len(samples) else 0.0


def _optimizer(history: History, name: str) -> str:
    group = history.facts["groups"][history.facts["group_of"].get(name, 0)]
    optimizer, momentum = group["optimizer"], group["momentum"]
    return f"{optimizer} with a momentum of {number(momentum)}" if momentum else optimizer
