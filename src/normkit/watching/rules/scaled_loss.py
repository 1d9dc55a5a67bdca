"""A loss that is scaled up or down, and gradients that nothing scales back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History

RATIO = 3.0
"""Over the mean cross entropy, of all calls of a step together. Weights of classes and of further losses move it by
less; dividing by the number of micro-batches twice, or not at all, by more."""
POWER = 0.01  # from a power of two: bfloat16 rounds what is read by less
FIRST = 5  # samples: later, smoothed labels move what is read
ADAPTIVE = ("Adam", "Lion", "RMSprop", "Adagrad", "Muon", "LAMB", "Sophia", "Prodigy", "SOAP")


def find(history: History) -> Iterator[Finding]:
    """Compare the gradient of the output with that of the mean cross entropy, and what the optimizer got with both."""
    scale, rescaled = (_first(history.series(LOSS, what)) for what in ("loss_scale", "rescaled"))
    if scale is None:
        return
    half = "float16" in history.facts.get("dtypes", {}).values()
    if half or by_scaler(scale) or (rescaled is not None and rescaled < 1 / RATIO and scale > 1):
        if rescaled is None:
            return
        scale *= rescaled  # scaled back by a GradScaler, or clipped
    if 1 / RATIO <= scale <= RATIO:
        return
    groups = history.facts["groups"]
    blind = bool(groups) and all(any(word in group["optimizer"] for word in ADAPTIVE) for group in groups)
    if blind and scale > 1 and scale < 2**8:
        return  # such as a sum over the batch: it changes no step of theirs
    arrives = "" if rescaled is None else ", at the optimizer's step as well"
    yield Finding(
        "the loss is scaled",
        4.1 if not blind else 3.3,
        (LOSS,),
        f"the gradients are {number(scale)} times those of the mean cross entropy{arrives}.",
        since=history.steps[0],
        leads="steps of SGD that are as many times too large or too small, and clipping that always or never bites",
        otherwise=f"a factor of 1 / {RATIO:g} to {RATIO:g}",
        margin=max(scale, 1 / scale) / RATIO,
        remedies=(
            Remedy("the mean", f"loss = loss / {number(scale)}  # or once by the number of micro-batches, or unscaled"),
        ),
    )


def by_scaler(scale: float | np.ndarray) -> np.ndarray:
    """Whether a factor is a GradScaler's, which is a power of two; one is also used where nothing is in float16.

    >>> by_scaler(np.array([65_500.0, 60_000.0, 64.0, np.nan])).tolist()
    [True, False, False, False]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        exponent = np.log2(scale)
        return (exponent > 7.9) & (np.abs(2 ** (exponent - np.round(exponent)) - 1) < POWER)


def _first(series: np.ndarray) -> float | None:
    samples = series[~np.isnan(series)][:FIRST]
    return float(np.median(samples)) if len(samples) else None
