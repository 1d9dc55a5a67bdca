"""Routers whose scores go through a softmax twice, so that all experts weigh nearly the same."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import LOSS, History


def find(history: History) -> Iterator[Finding]:
    """Look for softmaxes of what already is shares of 1."""
    twice = [name for name, count in history.late("softmax_twice").items() if count > 0 and name != LOSS]
    if not twice:
        return
    yield Finding(
        "a softmax is taken twice",
        3.2,
        tuple(twice),
        f"In {twice[0]} a softmax is taken of numbers that are not negative and sum to 1"
        f"{f', and so in {len(twice) - 1} others' if len(twice) > 1 else ''}.",
        since=history.since_when(twice[0], "softmax_twice", lambda count: count > 0),
        leads="weights that differ by a factor of e at most, so that no expert can be preferred, and small gradients",
        otherwise="scores of any sign and sum go into the softmax",
        remedies=(
            Remedy("one softmax", 'take it of the scores: nk.create("router", dim, experts, top_k=2)', runs=False),
        ),
    )
