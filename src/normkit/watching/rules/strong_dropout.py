"""Dropout that leaves so little that the loss follows what was dropped."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History
from normkit.watching.rules import dead_units, labels_apart, loss_spikes, loss_stands

NOISE = 5.0
"""1 / (1 - p), by which what is left is multiplied; its variance is one less. Usual are 1.1 to 2, and 5 where rows of
sparse inputs are dropped."""
ILL = (loss_stands, labels_apart, loss_spikes, dead_units)


def find(history: History) -> Iterator[Finding]:
    """Ask for a share that no usual training drops, and a loss or units that show it."""
    strong = {name: p for name, p in history.facts.get("dropouts", {}).items() if p > 1 - 1 / NOISE}
    if not strong or not any(any(rule.find(history)) for rule in ILL):
        return
    order = sorted(strong, key=lambda name: -strong[name])
    share = min(strong[order[0]], 1 - 1e-9)
    yield Finding(
        "dropout leaves too little",
        4.9,
        tuple(order),
        f"{order[0]} drops {strong[order[0]]:.3g} of its input and multiplies the rest by {1 / (1 - share):.3g}.",
        since=history.steps[0],
        leads="steps that follow which units were left, and a loss that does not fall",
        otherwise=f"a share of at most {1 - 1 / NOISE:.2g}; 0.1 to 0.5 are usual",
        margin=1 / (1 - share) / NOISE,
        remedies=(
            Remedy(
                "less dropout", "[setattr(m, 'p', 0.1) for m in model.modules() if type(m).__name__.startswith('Drop')]"
            ),
        ),
    )
