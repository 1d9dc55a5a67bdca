"""Parameters that the optimizer holds and that never get a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding
from normkit.watching.history import History

NEEDS = Needs("all parameters get a gradient", ("gradient",), samples=2)


def find(history: History) -> Iterator[Finding]:
    """Look for those without a gradient, or with one of exact zeros, at every sample.

    One sample is not enough: a layer that starts at zero gives those behind it no gradient in the first step.
    """
    gradient = history.of("gradient")
    if not gradient or not history.facts["group_of"] or len(history.steps) < 2:
        return
    none = [name for name in history.facts["group_of"] if name not in gradient]
    zero = [name for name, series in gradient.items() if (np.nan_to_num(series, nan=0.0) == 0).all()]
    if none or zero:
        counts = [f"{len(names)} {what}" for names, what in ((none, "have none"), (zero, "have only zeros")) if names]
        yield Finding(
            "parameters get no gradient",
            3.2,
            tuple(none + zero),
            f"{' and '.join(counts)}, of {len(history.facts['group_of'])} parameters that the optimizer holds: "
            f"{', '.join((none + zero)[:4])}.",
            leads="parameters that weight decay alone moves",
            otherwise="a gradient other than zero at some sample",
            slight=2 * _numbers(history, none + zero) < _numbers(history, history.facts["group_of"]),
        )


def _numbers(history: History, names: Iterable[str]) -> int:
    return sum(math.prod(history.facts["shapes"].get(name, [])) for name in names)
