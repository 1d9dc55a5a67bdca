"""Gradients that are now and then far larger than usual."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching import proposals
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, PEAK, History
from normkit.watching.rules import loss_stands

BEFORE = 5  # samples that a sample is compared with
RATIO = 10.0
"""Over the second largest of them, which one spike before does not move. Noise of batches gives at most two or three;
one step at ten times the usual length undoes what ten steps did, and fills the second moments of Adam for hundreds."""
NEEDS = Needs("the gradient has spikes", ("gradient",), samples=BEFORE + 1)


def find(history: History) -> Iterator[Finding]:
    """Compare the gradient of all parameters with the samples before."""
    series = [history.series(name, "gradient") for name in history.names("gradient")]
    if not series or len(history.steps) <= BEFORE:
        return
    whole = np.sqrt(np.nansum(np.square(series), axis=0))
    usual = np.array([np.sort(whole[i - BEFORE : i])[-2] for i in range(BEFORE, len(whole))])
    with np.errstate(invalid="ignore"):  # infinite over infinite, of a run that has diverged, is another rule's
        ratio = np.where(usual > 0, whole[BEFORE:] / np.maximum(usual, 1e-30), 0.0)  # 0: none was read before
    peaks, little = history.series(LOSS, PEAK)[BEFORE:], loss_stands.little(history)
    high = [i for i in range(len(ratio)) if np.isfinite(ratio[i]) and ratio[i] > RATIO and not peaks[i] < little]
    if not high:
        return
    worst = max(high, key=lambda i: ratio[i])
    growth = [history.series(n, "gradient")[worst + BEFORE] for n in history.names("gradient")]
    rate = proposals.rate(history, next(iter(history.facts["group_of"]), ""))
    yield Finding(
        "the gradient has spikes",
        3.5,
        (history.names("gradient")[int(np.nanargmax(growth))],),
        f"{len(high)} of {len(ratio)} samples have a gradient of more than {RATIO:g} times the usual; the largest, at "
        f"step {history.steps[worst + BEFORE]}, {number(whole[worst + BEFORE])} where {number(usual[worst])} is usual.",
        leads="steps that undo others, and moments that take long to forget",
        otherwise="at most two or three times the usual, by the noise of batches",
        margin=ratio[worst] / RATIO,
        remedies=(
            Remedy("stable-spam", f"optimizer = nk.StableSPAM(model.parameters(), lr={rate})  # where Adam was"),
            Remedy("agc", f"optimizer = nk.AGC(model.parameters(), lr={rate})  # where SGD was"),
        ),
    )
