"""Gradients that no step sets to zero, so that each step goes along the sum of all before."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import BAD, History
from normkit.watching.onset import MANY


def find(history: History) -> Iterator[Finding]:
    """Ask whether the last steps, :data:`MANY` of them in a row, began with the gradient of the one before."""
    kept = history.read(BAD, "kept_gradients")
    if len(kept) and kept[-1]:
        yield Finding(
            "gradients are never set to zero",
            4.7,
            (),
            f"the last {MANY} steps and more added their gradient to that of the step before.",
            since=history.steps[0],
            leads="steps along the sum of all gradients so far, which only grows",
            otherwise="a gradient that begins anew after a step",
            remedies=(Remedy("begin anew", "optimizer.zero_grad()  # after optimizer.step()"),),
        )
