"""Clipping that shortens every gradient to a small part of itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History

SHARE = 0.9  # of the samples
LEFT = 0.1
"""Of a gradient: clipping is for the rare long one. Many trainings are clipped to a half or a third on most steps, and
do well; at a tenth the threshold sets the step, and not the gradient."""
SAME, SHORT, FEWEST = 1e-3, 0.1, 5
"""Where the output's bias does not tell: a length that is the same at so many samples, up to rounding, and short."""


def find(history: History) -> Iterator[Finding]:
    """Compare what arrives at the optimizer with what the output got."""
    rescaled, scale = (history.series(LOSS, what) for what in ("rescaled", "loss_scale"))
    half = "float16" in history.facts.get("dtypes", {}).values()
    left = (rescaled * scale if half else rescaled)[~np.isnan(rescaled)]
    names = history.names("gradient")
    if not names:
        return
    whole = np.sqrt(np.nansum([np.square(history.series(name, "gradient")) for name in names], axis=0))
    if len(left) >= FEWEST and np.mean(left < LEFT) >= SHARE:
        evidence = f"the optimizer gets {number(float(np.median(left)))} of the gradient's length, the median of "
        evidence += f"{len(left)} samples; all parameters together are clipped to {number(float(np.median(whole)))}."
    elif len(whole) >= FEWEST and 0 < whole.max() < SHORT and np.ptp(whole) < SAME * whole.max():
        evidence = f"the gradient of all parameters has a length of {number(float(whole.max()))} at every sample."
    else:
        return
    yield Finding(
        "clipping bites at every step",
        3.6,
        tuple(names[:1]),
        evidence,
        since=history.steps[0],
        leads="steps whose length the threshold sets: of SGD far shorter ones than its rate says",
        remedies=(Remedy("a higher threshold", "about twice the usual length, which clip_grad_norm_ returns"),),
    )
