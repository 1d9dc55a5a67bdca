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
    kinds, shapes, found = history.facts["kinds"], history.facts["shapes"], {}
    for name, series in history.of("weight").items():
        layer, _, last = name.rpartition(".")
        there = series[~np.isnan(series)]
        if kinds.get(layer) != "norm" or last not in ("weight", "gain", "scale") or len(there) < 2:
            continue
        first, now = (value / math.sqrt(math.prod(shapes[name])) for value in (there[0], there[-1]))
        if first > 0.1 and now < LEFT * first:
            found[name] = (first, now)
    order = sorted(found, key=lambda name: found[name][1])
    if order:
        first, now = found[order[0]]
        start = history.series(order[0], "weight")[0]
        yield Finding(
            "the gains of norms are lost",
            4.1,
            tuple(order),
            f"the gain of {order[0].rpartition('.')[0]} fell from {number(first)} to {number(now)}; {len(order)} norms "
            "are so.",
            since=history.since_when(order[0], "weight", lambda value: value < LEFT * start),
            leads="layers that are fed nothing",
            remedies=(
                Remedy("no decay of gains", 'a group of their own: {"params": gains, "weight_decay": 0.0}'),
                Remedy("a gain that decays to one", 'nk.create("layernorm", width, offset=1.0)'),
            ),
        )
