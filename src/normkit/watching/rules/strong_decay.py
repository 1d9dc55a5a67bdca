"""Weight decay that takes weights away faster than gradients bring them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

SHARE = 2e-3
"""Of a weight that a step takes away. Usual are 1e-6 to 1e-4, as 1e-3 times 0.1 of AdamW, 0.1 times 5e-4 of SGD."""
LEFT = 0.5  # of the length of half of the matrices
DECAYS = ("SGD", "AdamW", "Lion", "Muon")  # a decay of Adam itself goes through its moments


def find(history: History) -> Iterator[Finding]:
    """Compare rate times decay with what is left of the matrices."""
    shapes, groups, left = history.facts["shapes"], history.facts["groups"], {}
    for name, series in history.of("weight").items():
        group = groups[history.facts["group_of"][name]] if name in history.facts["group_of"] else None
        samples = series[np.isfinite(series)]
        if group is not None and len(shapes[name]) > 1 and len(samples) > 1 and samples[0] > 0:
            rate = proposals.largest_rate(history, name)
            left[name] = (float(samples[-1] / samples[0]), _share(group, rate), rate, group)
    if not left or float(np.median([rest for rest, *_ in left.values()])) > LEFT:
        return
    name = min(left, key=lambda name: left[name][0])
    rest, share, rate, group = left[name]
    if share < SHARE:
        return
    usual = number(SHARE / 20 / max(rate, 1e-30))
    yield Finding(
        "weight decay is too strong",
        4.8,
        tuple(sorted(left, key=lambda name: left[name][0])),
        f"a decay of {number(group['weight_decay'])} at a rate of {number(rate)} takes {share:.2g} of a weight "
        f"at each step; {name} has {rest:.0%} of its length left.",
        since=history.steps[0],
        leads="layers that give less and less, whatever the data say",
        otherwise=f"less than {SHARE:g} of a weight a step, or weights that keep half of their length",
        margin=share / SHARE,
        remedies=(Remedy("less decay", f'for group in optimizer.param_groups: group["weight_decay"] = {usual}'),),
    )


def _share(group: dict[str, Any], rate: float) -> float:
    """How much of a weight a step takes away; momentum adds up that of SGD."""
    share = rate * group["weight_decay"] if group["optimizer"] in DECAYS or group.get("decoupled") else 0.0
    return share / max(1 - group["momentum"], 0.01) if group["optimizer"] == "SGD" else share
