"""Attention scores that grow without end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.columns import number_of
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, number
from normkit.watching.history import History
from normkit.watching.rules import entropy_collapse
from normkit.watching.trials import Trial, reading

LARGE, TIMES, RISEN = 100.0, 5.0, 1.2
"""The score, over the first sample's, and over the middle of the run. Healthy small decoders reach 55 in 160 steps of a
large rate; 100 is what QK-clip holds scores below (Kimi K2). Where scores stand still, it was meant."""
FEWEST = 6  # samples
NEEDS = Needs("attention scores grow", ("entropy",), FEWEST, asked=lambda history: bool(history.facts.get("attends")))
TRIAL = Trial(
    what=lambda history, finding: f"the largest score of {finding.where[0]}",
    read=lambda history, finding: reading(history, finding.where[0], "logit"),
)


def find(history: History) -> Iterator[Finding]:
    """Compare each layer's largest score with what it was; a collapse is another rule's."""
    layers = {}
    for name, series in history.of("logit").items():
        scores = series[np.isfinite(series)]
        if len(scores) < FEWEST:
            continue
        now, middle = float(scores[-1]), float(scores[len(scores) // 2])
        if now > LARGE and now > TIMES * scores[0] and now > RISEN * middle:
            layers[name] = (float(scores[0]), now)
    order = sorted(layers, key=lambda name: -layers[name][1])
    if order:
        first, now = layers[order[0]]
        yield Finding(
            "attention scores grow",
            4.4,
            tuple(order),
            f"the largest score of {order[0]} grew from {number(first)} to {number(now)}, and still grows; "
            f"this holds for {number_of(len(order), 'layer')}.",
            since=history.since_when(order[0], "logit", lambda value: value > TIMES * first),
            leads="heads that look at one key, without a gradient, and spikes of the loss",
            otherwise=f"scores below {LARGE:g}, or scores that stand still",
            margin=now / LARGE,
            remedies=entropy_collapse.remedies(history),
        )
