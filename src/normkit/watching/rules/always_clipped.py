"""Clipping that shortens every gradient to a small part of itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History
from normkit.watching.rules.scaled_loss import by_scaler

SHARE = 0.9  # of the samples
LEFT = 0.1
"""Of a gradient: clipping is for the rare long one. Many trainings are clipped to a half or a third on most steps, and
do well; at a tenth the threshold sets the step, and not the gradient."""
SAME, SHORT, FEWEST = 1e-3, 0.1, 5
"""Where the output's bias does not tell: a length that is the same at so many samples, up to rounding, and short."""
NEEDS = Needs("clipping bites at every step", ("gradient",), samples=FEWEST)


def find(history: History) -> Iterator[Finding]:
    """Compare what arrives at the optimizer with what the output got."""
    rescaled, scale = (history.series(LOSS, what) for what in ("rescaled", "loss_scale"))
    half = "float16" in history.facts.get("dtypes", {}).values()
    unscaled = rescaled * scale  # of a gradient that a GradScaler has scaled back, what clipping has left
    with np.errstate(divide="ignore"):
        scaled = half | by_scaler(1 / rescaled) | (by_scaler(scale) & (unscaled < 1 + LEFT))
    left = np.where(scaled, unscaled, rescaled)[~np.isnan(rescaled)]
    names = history.names("gradient")
    if not names:
        return
    whole = np.sqrt(np.nansum([np.square(history.series(name, "gradient")) for name in names], axis=0))
    if len(left) >= FEWEST and np.mean(left < LEFT) >= SHARE:
        share = float(np.median(left))
        evidence = f"the optimizer gets {number(share)} of the gradient's length, the median of "
        evidence += f"{len(left)} samples; all parameters together are clipped to {number(float(np.median(whole)))}."
        margin, usual = LEFT / max(share, 1e-30), float(np.median(whole)) / max(share, 1e-30)
        threshold = f"max_norm = {number(2 * usual)}  # of clip_grad_norm_: twice the usual length"
        remedy = Remedy("a higher threshold", threshold)
    elif len(whole) >= FEWEST and 0 < whole.max() < SHORT and np.ptp(whole) < SAME * whole.max():
        evidence = f"the gradient of all parameters has a length of {number(float(whole.max()))} at every sample."
        margin = SAME * float(whole.max()) / max(float(np.ptp(whole)), 1e-30)
        remedy = Remedy("a higher threshold", "about twice the usual length, which clip_grad_norm_ returns", runs=False)
    else:
        return
    yield Finding(
        "clipping bites at every step",
        3.6,
        tuple(names[:1]),
        evidence,
        since=history.steps[0],
        leads="steps whose length the threshold sets: of SGD far shorter ones than its rate says",
        otherwise=f"most gradients would be shorter than the threshold, or keep more than {LEFT:.0%} of their length",
        margin=margin,
        remedies=(remedy,),
    )
