"""A full learning rate at the first step, and steps that were too large only then."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History, late_median
from normkit.watching.rules import large_updates

EARLY, MIDDLE = 0.25, 0.5  # of the samples
HIGH, CALM = 0.1, 0.5  # the largest step at the beginning, and the share of it that later ones stay below
JUMP = 1.5  # over the first loss
RECOVERED = 0.6  # of the first loss, where the run has come to
FEWEST = 8  # samples
NEEDS = Needs("a warm-up is missing", (LOSS, "update"), samples=FEWEST)


def find(history: History) -> Iterator[Finding]:
    """Ask for a rate that starts at its largest, long steps at the beginning alone, and a loss that rose there."""
    rates = history.rates(next(iter(history.facts["group_of"]), ""))
    ratios = _steps(history)
    loss = history.series(LOSS, LOSS)
    if len(history.steps) < FEWEST or not ratios or np.isnan([loss[0], rates[0]]).any() or rates[0] < np.nanmax(rates):
        return
    if not any(group["optimizer"] in ADAPTIVE for group in history.facts["groups"]):
        return
    if not late_median(loss) < RECOVERED * loss[0]:
        return  # then the rate itself is too high
    usual = np.array([np.nan if np.isnan(sample).all() else np.nanmedian(sample) for sample in np.array(ratios).T])
    early, late = max(2, int(EARLY * len(usual))), usual[int(MIDDLE * len(usual)) :]
    if np.isnan(usual[:early]).all() or np.isnan(late).all():
        return  # then weights are lost, which other rules say
    peak = float(np.nanmax(usual[:early]))
    jump = float(np.nanmax(history.series(LOSS, "loss_peak")[:early]))
    if peak > HIGH and np.nanmedian(late) < CALM * peak and jump > JUMP * loss[0]:
        yield Finding(
            "there is no warm-up",
            5.9,
            tuple(large_updates.ratios(history))[:1],
            f"the rate is {number(float(rates[0]))} from the first step on; the first steps change a matrix by "
            f"{peak:.0%} of its length, later ones by {float(np.nanmedian(late)):.1%}, and the loss rose from "
            f"{number(float(loss[0]))} to {number(jump)}.",
            since=history.steps[0],
            leads="a start that the first steps destroy",
            otherwise=f"first steps of at most {HIGH:.0%}, or a loss that does not rise in them",
            margin=peak / HIGH,
            remedies=(
                Remedy("warm-up", "scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=500)"),
            ),
        )


def _steps(history: History) -> list[np.ndarray]:
    """The steps of the matrices, as shares of their lengths."""
    shapes = history.facts["shapes"]
    return [s for n, s in history.of("update").items() if len(shapes.get(n, [])) > 1 and not np.isnan(s).all()]


ADAPTIVE = ("Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax")
