"""A model that is fed numbers far from size one, with no norm before its first layer."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import DATA, History, late_median

LARGE, SMALL = 5.0, 0.005
"""Root mean square. Layers are drawn for inputs of size one: pixels in [0, 1] have about a half, those up to 255 a
hundred. A tenth of a percent is no input for a bias that moves by a thousandth."""

APART = 20.0  # of the largest feature over the median one: a single scale then fits only one of them
EACH = "x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)  # each feature, by numbers of all training data"


def find(history: History) -> Iterator[Finding]:
    """Look at the first tensor that the model is called with, unless it is words, and at what a layer is fed of it."""
    mean, spread = (late_median(history.series(DATA, what)) for what in ("data_mean", "data_deviation"))
    size = math.hypot(mean, spread)
    kinds, single = history.facts["kinds"], history.facts.get("single", ())
    first = next((kind for name, kind in kinds.items() if kind in ("layer", "norm") or name in single), "")
    if not math.isfinite(size) or SMALL <= size <= LARGE or size == 0 or first == "norm":
        return
    if SMALL <= late_median(history.series(DATA, "data_fed")) <= LARGE:
        return  # the model has normalized it by functions, or by a module that is not known as a norm
    uneven, one = _uneven(history), f"x = (x - {number(mean)}) / {number(max(spread, 1e-12))}"
    yield Finding(
        "the data are not normalized",
        3.8,
        (DATA,),
        f"what the model is fed has a mean of {number(mean)} and a standard deviation of {number(spread)}{uneven}; its "
        "first layer is drawn for 0 and 1, and no norm stands before it.",
        since=history.steps[0],
        leads="outputs as many times too large, units that die in the first steps, and a rate that fits no layer",
        otherwise=f"a size of {SMALL:g} to {LARGE:g}, or a norm that takes it away",
        margin=max(size / LARGE, SMALL / size),
        remedies=(Remedy("normalized data", EACH if uneven else one),),
    )


def _uneven(history: History) -> str:
    """Name the feature that is the large one; nothing where all are alike, or what is fed is no table."""
    largest, which, usual = (late_median(history.series(DATA, f"data_{w}")) for w in ("largest", "feature", "usual"))
    feature = f", by feature {which:.0f} of size {number(largest)}, where {number(usual)} is the median"
    return feature if largest > APART * usual else ""
