"""Orthogonalized steps that something shortens after they were made, such as a global clip."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History

SHORT = 0.4  # of the length that rate and shape give a step: polynomials leave 0.7 to 1.2 of it
ALIKE = 3  # a clip of all shortens all alike; gradients of low rank shorten single ones
FEWEST = 2  # matrices that are compared


def find(history: History) -> Iterator[Finding]:
    """Compare the steps of matrices with what their rates and shapes make of them."""
    ratios = {name: ratio for name in history.facts.get("step_lengths", {}) if (ratio := _ratio(history, name)) > 0}
    if len(ratios) < FEWEST or max(ratios.values()) > min(SHORT, ALIKE * min(ratios.values())):
        return
    middle = float(np.median(list(ratios.values())))
    yield Finding(
        "orthogonalized steps are cut short",
        3.4,
        tuple(ratios),
        f"The steps of {len(ratios)} matrices have {middle:.1%} of the length that their learning rates give them, all "
        "alike.",
        leads="a learning rate that is not the one that was set",
        otherwise=f"steps would have {SHORT:.0%} to 120% of it",
        margin=SHORT / max(middle, 1e-30),
        remedies=(
            Remedy("clip before the optimizer", "nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step()"),
        ),
    )


def _ratio(history: History, name: str) -> float:
    """The median share of its length that a step has; 0 where nothing was read."""
    expected = history.rates(name) * history.facts["step_lengths"][name]
    steps = history.series(name, "update") * history.series(name, "weight")
    shares = (steps / expected)[np.isfinite(steps) & (expected > 0)]
    return float(np.median(shares)) if len(shares) and not math.isnan(np.median(shares)) else 0.0
