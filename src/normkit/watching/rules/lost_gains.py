"""Gains of norms that weight decay has eaten."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

LEFT = 0.35
"""Of a gain's size at the start. A norm whose gain has gone gives what it is fed divided away; gains that training
moves by itself stayed between a half and twice."""


def find(history: History) -> Iterator[Finding]:
    """Compare the gains of norms with what they were."""
    kinds, shapes, gains = history.facts["kinds"], history.facts["shapes"], {}
    for name, series in history.of("weight").items():
        layer, _, last = name.rpartition(".")
        samples = series[~np.isnan(series)]
        if kinds.get(layer) != "norm" or last not in ("weight", "gain", "scale") or len(samples) < 2:
            continue
        first, now = (value / math.sqrt(math.prod(shapes[name])) for value in (samples[0], samples[-1]))
        if first > 0.1 and now < LEFT * first:
            gains[name] = (first, now)
    order = sorted(gains, key=lambda name: gains[name][1])
    if order:
        first, now = gains[order[0]]
        start = history.series(order[0], "weight")[0]
        yield Finding(
            "the gains of norms are lost",
            4.1,
            tuple(order),
            f"the gain of {order[0].rpartition('.')[0]} fell from {number(first)} to {number(now)}; {len(order)} norms "
            "are so.",
            since=history.since_when(order[0], "weight", lambda value: value < LEFT * start),
            leads="layers that are fed nothing",
            otherwise="gains of a half to twice of what they were",
            margin=LEFT * first / max(now, 1e-30),
            remedies=(
                Remedy("no decay of gains", _line(history, order[0])),
                Remedy(
                    "a gain that decays to one", "nk.create(name, width, offset=1.0), whose gain is 1 + weight", False
                ),
            ),
        )


def _line(history: History, name: str) -> str:
    """Make the optimizer anew, with groups by role: gains do not decay."""
    group = history.facts["groups"][history.facts["group_of"].get(name, 0)]
    kind = group["optimizer"] if group["optimizer"] in ("Adam", "AdamW", "SGD") else "AdamW"
    return (
        f"optimizer = torch.optim.{kind}(nk.param_groups(model, weight_decay={number(group['weight_decay'])}), "
        f"lr={number(group['lr'])})"
    )
