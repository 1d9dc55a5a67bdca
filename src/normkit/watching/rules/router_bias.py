"""A router's selection bias that has drifted so far that it alone chooses the experts."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

SPREAD = 1.0
"""Between the largest and the least bias. Scores of a sigmoid or a softmax lie between 0 and 1: two experts whose
biases are further apart are never chosen in another order, whatever the token is."""


def find(history: History) -> Iterator[Finding]:
    """Look at the spread of the bias that is added to scores before experts are chosen."""
    spread = history.late("bias_spread")
    order = sorted((name for name in spread if spread[name] > SPREAD), key=lambda name: -spread[name])
    if not order:
        return
    name = order[0]
    start = float(history.series(name, "bias_spread")[0])
    yield Finding(
        "a router's bias chooses, not its scores",
        3.4,
        tuple(order),
        f"the selection bias of {name} spans {number(spread[name])}, where its scores lie between 0 and 1; it began at "
        f"{number(start)}; {len(order)} of {len(spread)} routers with a bias are so.",
        since=history.since_when(name, "bias_spread", lambda value: value > SPREAD),
        leads="experts that are chosen whatever the token is, and others that never are",
        otherwise=f"a bias that spans less than {SPREAD:g}",
        margin=spread[name] / SPREAD,
        remedies=(
            Remedy(
                "a smaller rate of the bias", "router.balance(experts, rate=0.001) or less after each step", runs=False
            ),
            Remedy("a bias of mean zero", "router.selection_bias -= router.selection_bias.mean()", runs=False),
        ),
    )
