"""Training steps of a model that is in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import DATA, History

FEWEST = 3  # samples
NEEDS = Needs(
    "the model is in training mode",
    ("evaluating",),
    samples=FEWEST,
    asked=lambda history: bool(history.names("evaluating")),
)


def find(history: History) -> Iterator[Finding]:
    """Ask for steps whose every forward pass was in evaluation mode."""
    evaluating = history.read(DATA, "evaluating")
    if len(evaluating) < FEWEST or not evaluating.all():
        return
    norms = tuple(history.facts["momenta"])
    effect = f"{norms[0]} and other batch norms normalize by constants" if norms else "dropouts drop nothing"
    yield Finding(
        "the model is trained in evaluation mode",
        2.5,
        norms or (DATA,),
        f"model.training was False in all {len(evaluating)} steps that were looked at: {effect}.",
        since=history.steps[0],
        leads="batch norms that normalize nothing, and a model that learns its data by heart",
        otherwise="model.train() before the first step, and again after each evaluation",
        remedies=(Remedy("training mode", "model.train()"),),
    )
