"""NaN or infinite values in what the model is fed."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import DATA, History


def find(history: History) -> Iterator[Finding]:
    """Look at the first step of which the data were not finite, and what the model made of them was not either."""
    step = history.first_bad(DATA)
    if step and any(step <= history.first_bad(place) <= step + 1 for place in ("output", "gradient")):
        yield Finding(
            "the data hold NaN or infinity",
            11.0,
            (DATA,),
            f"the batch of step {step} is the first that does; up to there all that the model was fed was finite.",
            since=step,
            leads="a loss of NaN, and weights of NaN after that step; go back to a checkpoint of before",
            otherwise="data, output and gradient would be finite at every step",
            remedies=(Remedy("look at the data", "assert all(x.isfinite().all() for x, *_ in loader)"),),
        )
