"""A loss that is scaled up or down, and gradients that nothing scales back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History

RATIO = 3.0
"""Over the mean cross entropy, of all calls of a step together. Weights of classes and of further losses move it by
less; dividing by the number of micro-batches twice, or not at all, by more."""
FIRST = 5  # samples: later, smoothed labels move what is read
ADAPTIVE = ("Adam", "Lion", "RMSprop", "Adagrad", "Muon", "LAMB", "Sophia", "Prodigy", "SOAP")


def find(history: History) -> Iterator[Finding]:
    """Compare the gradient of the output with that of the mean cross entropy, and what the optimizer got with both."""
    scale, rescaled = (_first(history.series(LOSS, what)) for what in ("loss_scale", "rescaled"))
    if scale is None:
        return
    half = "float16" in history.facts.get("dtypes", {}).values()
    if half or (rescaled is not None and rescaled < 1 / RATIO and scale > 1):
        if rescaled is None:
            return
        scale *= rescaled  # scaled back by a GradScaler, or clipped
    if 1 / RATIO <= scale <= RATIO:
        return
    groups = history.facts["groups"]
    blind = bool(groups) and all(any(word in group["optimizer"] for word in ADAPTIVE) for group in groups)
    if blind and scale > 1 and scale < 2**8:
        return  # such as a sum over the batch: it changes no step of theirs
    yield Finding(
        "the loss is scaled",
        4.1 if not blind else 3.3,
        (LOSS,),
        f"the gradients are {number(scale)} times those of the mean cross entropy, at the optimizer's step as well.",
        since=history.steps[0],
        leads="steps of SGD that are as many times too large or too small, and clipping that always or never bites",
        otherwise=f"a factor of 1 / {RATIO:g} to {RATIO:g}",
        margin=max(scale, 1 / scale) / RATIO,
        remedies=(
            Remedy("the mean", f"loss = loss / {number(scale)}  # or once by the number of micro-batches, or unscaled"),
        ),
    )


def _first(series: np.ndarray) -> float | None:
    samples = series[~np.isnan(series)][:FIRST]
    return float(np.median(samples)) if len(samples) else None
