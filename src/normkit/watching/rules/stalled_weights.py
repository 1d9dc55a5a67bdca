"""Weights that have a gradient, and do not move."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.store import Sign

RATIO = 1e-7
"""Of a step's length to the weight's: about the resolution of float32. Below it an addition is lost in rounding, and a
million steps would not change a tenth. Weights kept in bfloat16 come here at steps below a thousandth."""
SIGN = Sign("update", RATIO, above=False)


def find(history: History) -> Iterator[Finding]:
    """Look at matrices with a gradient and a learning rate."""
    shapes, gradient = history.facts["shapes"], history.late("gradient")
    late = {name: value for name, value in history.late("update").items() if len(shapes.get(name, [])) > 1}
    ill = [
        name
        for name, ratio in late.items()
        if ratio < RATIO and gradient.get(name, 0.0) > 0 and not (history.rates(name)[-1:] == 0).any()
    ]
    order = sorted(ill, key=lambda name: late[name])
    if not order or len(history.steps) < 2 or math.isnan(late[order[0]]):
        return
    rate = float(history.rates(order[0])[-1])
    better = min(1e-3, 1e-3 * rate / max(late[order[0]], 1e-30))
    higher = [Remedy("a higher learning rate", proposals.set_rate(better))] if better > rate else []
    dtypes = history.facts.get("dtypes_of", {})
    half = any(dtypes.get(name, "float32") not in ("float32", "float64") for name in order)
    wider = [Remedy("float32 weights", "model.float()  # with autocast for the speed")] if half else []
    yield Finding(
        "weights do not move",
        3.5,
        tuple(order),
        f"a step changes {order[0]} by {number(late[order[0]])} of its length at a learning rate of {number(rate)}, "
        f"though it has a gradient; {len(order)} of {len(late)} matrices are so.",
        since=history.since(order[0], SIGN),
        leads="a training that costs time and changes nothing",
        otherwise=f"steps of more than {RATIO:g} of the weight; a thousandth is usual",
        margin=RATIO / max(late[order[0]], 1e-30),
        remedies=(*higher, *wider),
    )
