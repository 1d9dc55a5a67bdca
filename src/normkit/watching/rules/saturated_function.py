"""Tanh or sigmoid whose inputs are so large that the function is flat."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History
from normkit.watching.store import Sign
from normkit.watching.trials import flat_share

SHARE = 0.5
"""Of the entries beyond 0.99 of the bound: the slope there is 2 % of the largest, so half of the gradient is lost at
each such layer. The last function of a model is left out: a sure classifier's output is meant to be there."""
NAMES = ("Tanh", "Sigmoid", "Softsign", "Hardtanh")
SIGN = Sign("saturated", SHARE)
TRIAL = flat_share(SHARE)


def find(history: History) -> Iterator[Finding]:
    """Look at all but the last of the bounded functions."""
    late, classes = history.late("saturated"), history.facts["classes"]
    last = list(classes)[-1] if classes else ""
    ill = [name for name, share in late.items() if share > SHARE and classes.get(name) in NAMES and name != last]
    order = sorted(ill, key=lambda name: -late[name])
    if order:
        yield Finding(
            "activation functions are saturated",
            3.0 + late[order[0]],
            tuple(order),
            f"{late[order[0]]:.0%} of {order[0]} ({classes[order[0]]}) lies where the function is flat.",
            since=history.since(order[0], SIGN),
            leads="layers that pass on signs, and hardly any gradient to those before them",
            otherwise=f"at most {SHARE:.0%}",
            margin=(1 - SHARE) / max(1 - late[order[0]], 1e-9),
            remedies=_remedies(history, order[0]),
        )


def _remedies(history: History, name: str) -> tuple[Remedy, ...]:
    """Propose a norm before the function, and where the model has one already, a smaller start."""
    norms = [remedy for remedy in proposals.norms_before(history, name) if remedy.name == "layernorm"]
    smaller = Remedy("smaller weights", "[nn.init.xavier_normal_(p) for p in model.parameters() if p.dim() > 1]")
    return (*norms, smaller)
