"""Batches whose samples are all the same, and a loss that does not fall."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import DATA, History
from normkit.watching.rules import labels_apart, loss_stands

FEWEST = 3  # samples


def find(history: History) -> Iterator[Finding]:
    """Ask for batches without a difference; a model that is fed one thing on purpose may still learn."""
    varies = history.read(DATA, "data_varies")
    if len(varies) < FEWEST or varies.any() or not any(any(r.find(history)) for r in (loss_stands, labels_apart)):
        return
    yield Finding(
        "all samples of a batch are the same",
        4.5,
        (DATA,),
        f"in all {len(varies)} batches that were looked at, what the model is fed is the same for every sample.",
        since=history.steps[0],
        leads="a model that can learn no more than how often each label comes",
        otherwise="samples that differ",
        remedies=(Remedy("look at the data", "print(next(iter(loader))[0][:2])"),),
    )
