"""Routers that send their tokens to a few experts, whatever the tokens are."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

IDLE = 0.5
"""Of a router's experts, with no token of a batch that has eight choices an expert: with even loads an expert is left
out once in 3000 batches (e^-8), and half of them never. What is not chosen gets no gradient, so it is never chosen."""


def find(history: History) -> Iterator[Finding]:
    """Look at the share of experts that no token goes to."""
    idle, load = history.late("idle"), history.late("load")
    order = sorted((name for name in idle if idle[name] >= IDLE), key=lambda name: -idle[name])
    if not order:
        return
    name = order[0]
    yield Finding(
        "a router has collapsed",
        3.5 + idle[name],
        tuple(order),
        f"{idle[name]:.0%} of the experts of {name} get no token, and one gets {number(load[name])} times its share; "
        f"{len(order)} of {len(idle)} routers are so.",
        since=history.since_when(name, "idle", lambda value: value >= IDLE),
        leads="a smaller model than was paid for; experts without tokens get no gradient and stay so",
        otherwise="every expert chosen in a batch, by even loads",
        margin=load[name] / 2,
        remedies=(
            Remedy(
                "a selection bias",
                "selection_bias=True of the router, and router.balance(experts) after each step",
                runs=False,
            ),
            Remedy(
                "an auxiliary loss",
                "add experts * sum(load * mean score) of each router to the loss, times 0.01",
                runs=False,
            ),
        ),
    )
