"""Weights before a norm that have grown, so that a step turns them less and less."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching import proposals
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

RADIAL = 0.05
"""Times 1 / sqrt(entries): how far the cosine of weight and gradient may lie from 0 for the weight to count as one that
a norm follows. It is 0 then but for rounding; of other weights it was above at some sample."""
FALL = 10.0
"""Of the effective learning rate, lr / n or lr / n² (arXiv 1706.05350), by growth of the weight alone: as much as a
whole cosine schedule takes away, unasked."""
FEWEST = 3  # samples
PROJECTING = {
    1: ("adamp", "optimizer = nk.AdamP(model.parameters(), lr={})"),
    2: ("sgdp", "optimizer = nk.SGDP(model.parameters(), lr={}, momentum=0.9)"),
}
"""What takes the part of a step away that only lengthens the weight, by the power that the step falls with."""
NEEDS = Needs("effective steps shrink", ("radial",), samples=FEWEST)


def find(history: History) -> Iterator[Finding]:
    """Compare the sizes of scale-invariant weights with what they were."""
    falls = {name: fall for name in scale_invariant(history) if (fall := _fall(history, name)) > FALL}
    order = sorted(falls, key=lambda name: -falls[name])
    if not order:
        return
    n = history.series(order[0], "weight")
    start = n[~np.isnan(n)][0]
    power = _power(history, order[0])
    name, line = PROJECTING[power]
    yield Finding(
        "effective steps shrink",
        3.0 + math.log10(falls[order[0]]) / 10,
        tuple(order),
        f"the effective step of {len(order)} weights that norms follow fell, by up to {number(falls[order[0]])}x: "
        f"{order[0]} grew from {number(start)} to {number(float(n[~np.isnan(n)][-1]))}.",
        since=history.since_when(order[0], "weight", lambda value: (value / start) ** power > FALL),
        leads="layers that stop to learn long before the schedule ends",
        otherwise=f"weights that grow less, so that the effective step falls by less than {FALL:g}x",
        margin=falls[order[0]] / FALL,
        remedies=(
            Remedy(name, line.format(proposals.rate(history, order[0]))),
            Remedy("normalize-and-project", 'nk.weight.project(model, optimizer, "normalize-and-project")'),
        ),
    )


def scale_invariant(history: History) -> list[str]:
    """Return the weights whose gradient was orthogonal to them at every sample."""
    names: list[str] = []
    if len(history.steps) < FEWEST:
        return names
    for name, cosine in history.of("radial").items():
        entries = math.prod(history.facts["shapes"].get(name, [1]))
        samples = cosine[~np.isnan(cosine)]
        if len(samples) >= FEWEST and np.abs(samples).max() * math.sqrt(entries) < RADIAL:
            names.append(name)
    return names


def _power(history: History, name: str) -> int:
    groups = history.facts["groups"]
    kind = groups[history.facts["group_of"].get(name, 0)]["optimizer"] if groups else ""
    return 2 if kind.startswith("SGD") else 1


def _fall(history: History, name: str) -> float:
    n = history.series(name, "weight")
    lengths = n[~np.isnan(n)]
    return float((lengths[-1] / max(lengths[0], 1e-30)) ** _power(history, name)) if len(lengths) else 0.0
