"""A layer or a norm that gives nothing but zeros, whatever it is fed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import Array, History

FEWEST = 3  # samples: what starts at zero on purpose, as the last norm of a residual branch, has moved by then


def find(history: History) -> Iterator[Finding]:
    """Look for the first that gave zeros at every sample; a function that does so is dead, which is another rule's."""
    kinds = history.facts["kinds"]
    shapes = history.facts["shapes"]
    for name in history.names("rms"):
        if kinds.get(name) not in ("layer", "norm") and f"{name}.weight" not in shapes:
            continue
        if not _is_zero(history.series(name, "rms")):
            continue
        what = "gain and shift" if kinds[name] == "norm" else "weight and bias"
        yield Finding(
            "a layer gives zeros",
            4.4,
            (name,),
            f"what {name} gives is zero at all {len(history.steps)} samples: its {what} are zero, and no step moves "
            "them; what it is fed is not.",
            since=history.steps[0],
            leads="no signal behind it, and no gradient before it",
            otherwise="numbers other than zero after the first steps",
            remedies=(Remedy("its usual start", f'model.get_submodule("{name}").reset_parameters()'),)
            if name in history.facts.get("resets", ())
            else (),
        )
        return


def _is_zero(series: Array) -> bool:
    samples = series[~np.isnan(series)]
    return len(samples) >= FEWEST and bool((samples == 0).all())
