"""Tables, heads and vectors in the hands of an optimizer that orthogonalizes its steps."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History

PLACES = {"embedding": "embeddings", "head": "the head", "gain": "gains", "bias": "biases", "vector": "vectors"}
PLACES |= {"depthwise": "depthwise kernels"}


def find(history: History) -> Iterator[Finding]:
    """Look for parameters whose rows are tokens or classes, or that are no matrices."""
    wrong = {n: role for n, role in history.facts.get("orthogonalized", {}).items() if role in PLACES}
    if wrong:
        kinds = ", ".join(dict.fromkeys(PLACES[role] for role in wrong.values()))
        yield Finding(
            "an optimizer of matrices has what is none",
            3.1,
            tuple(wrong),
            f"{len(wrong)} of {len(history.facts['orthogonalized'])} parameters with orthogonalized steps are {kinds}: "
            f"{', '.join(list(wrong)[:4])}.",
            leads="rows of rare tokens and classes that move as far as those of frequent ones",
            otherwise="matrices inside of the model alone",
            remedies=(Remedy("groups by role", 'optimizer = nk.Muon(nk.param_groups(model, "muon"))'),),
        )
