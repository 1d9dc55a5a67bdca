"""DyT or Derf whose slope has carried most entries to where the function is flat."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History
from normkit.watching.store import Sign
from normkit.watching.trials import flat_share

SHARE = 0.75
"""Of the entries beyond 0.99 of the bound. DyT's paper finds trained layers mostly on the straight part, with a few
outliers squashed; here three quarters of the gradient are gone. The last one, whose signs the head reads, may have
up to 0.8 in trainings that go well, and is left out."""
NAMES = {"DyT": "dyt", "DynamicTanh": "dyt", "Derf": "derf", "DynamicErf": "derf"}
SIGN = Sign("saturated", SHARE)
TRIAL = flat_share(SHARE)


def find(history: History) -> Iterator[Finding]:
    """Look at the squashers that stand for norms."""
    late = {n: s for n, s in history.late("saturated").items() if history.facts["classes"].get(n) in NAMES}
    late.pop(list(late)[-1] if late else "", None)
    order = sorted((name for name, share in late.items() if share > SHARE), key=lambda name: -late[name])
    if not order:
        return
    kind = history.facts["classes"][order[0]]
    name, which = NAMES[kind], f"type(m).__name__ == '{kind}'"
    yield Finding(
        f"{name} is saturated",
        3.0 + late[order[0]],
        tuple(order),
        f"{late[order[0]]:.0%} of {order[0]} lies where the function is flat"
        f"{f', and most of {len(order) - 1} other layers as well' if len(order) > 1 else ''}.",
        since=history.since(order[0], SIGN),
        leads="vectors of signs, and no gradient through them",
        otherwise=f"at most {SHARE:.0%}",
        margin=(1 - SHARE) / max(1 - late[order[0]], 1e-9),
        remedies=(Remedy("a lower alpha", f"[m.alpha.data.fill_(0.2) for m in model.modules() if {which}]"),),
    )
