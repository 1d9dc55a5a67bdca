"""A loss that now and then jumps far above its usual size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, PEAK, History
from normkit.watching.rules import loss_stands

BEFORE = 5  # samples that a sample is compared with
RATIO = 3.0  # over the second largest of them, which one spike before does not move
HEIGHT = 0.5
"""Of the first loss: in a run that has come to a thousandth of it, a hard batch may well have ten times the usual."""
NEEDS = Needs("the loss has spikes", (LOSS,), samples=BEFORE + 1)


def find(history: History) -> Iterator[Finding]:
    """Compare the largest loss of each sample with the samples before."""
    series, peaks = history.series(LOSS, LOSS), history.series(LOSS, PEAK)
    if len(series) <= BEFORE or not np.isfinite(series[: BEFORE + 1]).all():
        return
    usual = np.array([np.sort(series[i - BEFORE : i])[-2] for i in range(BEFORE, len(series))])
    jump = peaks[BEFORE:] - usual
    high = (
        (peaks[BEFORE:] > loss_stands.little(history))
        & (peaks[BEFORE:] > RATIO * usual)
        & (jump > HEIGHT * abs(series[0]))
        & np.isfinite(jump)
    )
    if not high.any():
        return
    worst = int(np.argmax(np.where(high, jump, 0)))
    yield Finding(
        "the loss has spikes",
        3.4,
        (LOSS,),
        f"{high.sum()} of {len(high)} samples have a loss of more than {RATIO:g} times the usual; the largest, up to "
        f"step {history.steps[worst + BEFORE]}, {number(peaks[worst + BEFORE])} where {number(usual[worst])} is usual.",
        since=history.steps[int(np.argmax(high)) + BEFORE],
        leads="steps that undo others",
        otherwise=f"losses below {RATIO:g} times the usual",
        margin=float(peaks[worst + BEFORE] / max(RATIO * usual[worst], 1e-30)),
        remedies=(
            Remedy("shorter steps", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()"),
        ),
    )
