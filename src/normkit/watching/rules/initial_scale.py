"""Weights that are drawn far too large or too small."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.rules import saturated_function
from normkit.watching.trials import Trial

LARGE, SMALL = 4.0, 0.05
"""Of the root mean square of a matrix's entries times the root of its inputs: the factor by which it makes independent
inputs larger. torch draws 0.58, Kaiming 1.4, Xavier 1; what is drawn by 0.02 has 0.1 to 1.3 at usual widths."""


def _by_depth(history: History) -> float:
    """Return how much larger what the last block gives is than what the first gives."""
    sizes = [float(history.series(name, "rms")[-1]) for name in history.facts["blocks"] if history.names("rms")]
    sizes = [size for size in sizes if math.isfinite(size)]
    return sizes[-1] / max(sizes[0], 1e-30) if len(sizes) > 1 else math.nan


TRIAL = Trial(
    what=lambda history, finding: "the size of what the last block gives, over that of the first,",
    read=lambda history, finding: _by_depth(history),
    ill=lambda ratio: abs(math.log(max(ratio, 1e-30))),
)


def find(history: History) -> Iterator[Finding]:
    """Look at the matrices before the first step, and ask for the median; a start at zero is meant."""
    if not history.steps or not history.facts["group_of"]:
        return  # of a model that is not in training there is no beginning
    gains = {name: gain for name in history.names("radial") if (gain := _gain(history, name)) > 1e-4}
    if len(gains) < 2:
        return
    middle = float(np.median(list(gains.values())))
    if SMALL <= middle <= LARGE:
        return
    large = middle > LARGE
    if large and any(finding.since == history.steps[0] for finding in saturated_function.find(history)):
        return  # which says it of the place where it does harm
    order = sorted(gains, key=lambda name: -gains[name] if large else gains[name])
    size, more, signals = ("large", "more", "explode") if large else ("small", "less", "vanish")
    yield Finding(
        f"weights are drawn too {size}",
        4.9,
        tuple(order),
        f"at the first step half of {len(gains)} matrices multiply the size of what they are fed by {number(middle)} "
        f"or {more}, {order[0]} by {number(gains[order[0]])}; usual is 0.5 to 2.",
        since=history.steps[0],
        leads=f"signals and gradients that {signals} with depth",
        otherwise=f"a factor of {SMALL:g} to {LARGE:g}",
        margin=middle / LARGE if large else SMALL / middle,
        remedies=(
            Remedy(
                "another start",
                "[nn.init.kaiming_normal_(p) for p in model.parameters() if p.dim() > 1]",
            ),
        ),
    )


def _gain(history: History, name: str) -> float:
    layer, shape = name.rpartition(".")[0], history.facts["shapes"].get(name, [1])
    if history.facts["classes"].get(layer) == "Embedding" or layer not in history.facts["classes"]:
        return 0.0
    size = history.series(name, "weight")[0]
    return 0.0 if np.isnan(size) else float(size / math.sqrt(shape[0]))
