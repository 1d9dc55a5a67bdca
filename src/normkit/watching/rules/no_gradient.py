"""Parameters that the optimizer holds and that never get a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding
from normkit.watching.history import History

NEEDS = Needs("all parameters get a gradient", ("gradient",), samples=2)

IDLE = ("router-collapse", "router-bias")
"""What leaves parameters without any gradient: experts that are not called. All else, as dead units, gives zeros."""


def find(history: History) -> Iterator[Finding]:
    """Look for those without a gradient, or with one of exact zeros, at every sample.

    One sample is not enough: a layer that starts at zero gives those behind it no gradient in the first step.
    """
    gradient = history.of("gradient")
    if not gradient or not history.facts["group_of"] or len(history.steps) < 2:
        return
    none = [name for name in history.facts["group_of"] if name not in gradient]
    zero = [name for name, series in gradient.items() if (np.nan_to_num(series, nan=0.0) == 0).all()]
    for names, count, causes in ((none, "have none", IDLE), (zero, "have only zeros", None)):
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            yield Finding(
                "parameters get no gradient",
                3.2,
                tuple(names),
                f"{len(names)} {count}, of {len(history.facts['group_of'])} parameters that the optimizer holds: "
                f"{', '.join(names[:4])}{more}.",
                leads="parameters that weight decay alone moves",
                otherwise="a gradient other than zero at some sample",
                causes=causes,
                slight=2 * _numbers(history, names) < _numbers(history, history.facts["group_of"]),
            )


def _numbers(history: History, names: Iterable[str]) -> int:
    return sum(math.prod(history.facts["shapes"].get(name, [])) for name in names)
