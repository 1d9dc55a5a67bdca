"""NaN or infinite values: the first place and step where they appeared."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normkit.watching.finding import Finding
from normkit.watching.history import History


def find(history: History) -> Iterator[Finding]:
    """Look sample by sample, forward through the layers and then at the gradients."""
    for place, step in enumerate(history.steps):
        for what, label in (("rms", "what it gives"), ("gradient", "its gradient")):
            for where in history.names(what):
                value = float(history.series(where, what)[place])
                if history.was_read(where, what)[place] and not math.isfinite(value):
                    yield Finding(
                        "numbers overflow or are none",
                        10.0,
                        (where,),
                        f"{where or 'the model'}: {label} holds {'NaN' if math.isnan(value) else 'infinity'} at step "
                        f"{step}, and nothing did that came before it{_before(history, place)}.",
                        since=step,
                        leads="every weight that it reaches is lost; go back to a checkpoint of before",
                        otherwise="finite numbers at every sample",
                    )
                    return


def _before(history: History, place: int) -> str:
    return f"; at step {history.steps[place - 1]} all was finite" if place else ""
