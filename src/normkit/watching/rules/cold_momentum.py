"""Momentum that begins anew at every step, and so averages nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

LEFT = 0.02  # of a momentum, beyond its last gradient: rounding in bfloat16 leaves 0.004
FEWEST = 3  # samples after the first step, at which every momentum is new
NEEDS = Needs(
    "momentum begins anew at every step", ("carried",), FEWEST, asked=lambda history: bool(history.names("carried"))
)


def find(history: History) -> Iterator[Finding]:
    """Compare momenta with the share that the last gradient has in them."""
    later = np.array(history.steps) > 1
    shares = {name: series[later & ~np.isnan(series)] for name, series in history.of("carried").items()}
    cold = {name: own for name, own in shares.items() if len(own) >= FEWEST and own.max() < LEFT}
    if not cold or len(cold) < len(shares):
        return
    name = next(iter(cold))
    yield Finding(
        "momentum begins anew at every step",
        3.3,
        tuple(cold),
        f"at each of {len(cold[name])} samples the momentum of {name} is its last gradient alone, up to "
        f"{number(float(cold[name].max()))}.",
        leads="steps along single noisy gradients, which Muon makes as long as steps along their average",
        otherwise=f"more than {LEFT:.0%} of it would come of earlier gradients",
        margin=LEFT / max(float(cold[name].max()), 1e-30),
        remedies=(
            Remedy(
                "one optimizer for the whole run", "build it once, and keep its state over steps and loads", runs=False
            ),
        ),
    )
