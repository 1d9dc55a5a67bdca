"""Batch norms that take their statistics of a handful of values, or of one sample."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching import proposals
from normkit.watching.finding import Finding, number
from normkit.watching.history import History

COUNT = 10.0
"""Values a channel. The variance of n values is off by sqrt(2 / n) of itself: 45 % for ten."""
SAMPLES = 2.0
"""The places of one sample may be many values, but what they have in common is lost, as in an instance norm."""


def find(history: History) -> Iterator[Finding]:
    """Look at how many values and samples each statistic is of."""
    late = {**history.late("count"), **history.late("values")}  # files of before have no values of all processes
    order = sorted((name for name, count in late.items() if count < COUNT), key=lambda name: late[name])
    if order:
        noise = (2 / late[order[0]]) ** 0.5
        yield Finding(
            "batch statistics are taken of too few values",
            2.5,
            tuple(order),
            f"{order[0]} takes its variance of {number(late[order[0]])} values a channel, which is off by {noise:.0%}.",
            leads="noise in training, and another network in evaluation",
            otherwise=f"at least {COUNT:g} values",
            margin=COUNT / late[order[0]],
            remedies=(
                proposals.swap_line(history, "layernorm"),
                proposals.swap_line(history, "groupnorm"),
            ),
        )
        return
    alone = [name for name, samples in history.late("samples").items() if samples < SAMPLES]
    if alone:
        yield Finding(
            "batch statistics are taken of one sample",
            2.5,
            tuple(alone),
            f"{alone[0]} takes its statistics of one sample, {number(late[alone[0]])} values a channel.",
            leads="a network that does not see how strong a channel is in a sample, and another one in evaluation",
            otherwise=f"at least {SAMPLES:g} samples",
            margin=SAMPLES,
            remedies=(proposals.swap_line(history, "groupnorm"),),
        )
