"""Layers whose output has all but vanished."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding
from normkit.watching.history import History
from normkit.watching.store import Sign

QUIET = Sign("rms", 1e-6, above=False)
"""Of what a layer gives: the root mean square below which float16 keeps few digits."""
NEEDS = Needs("layers go quiet", ("rms",))


def find(history: History) -> Iterator[Finding]:
    """Look at what all layers give."""
    quiet = {name: rms for name, rms in history.late("rms").items() if QUIET.shows(rms)}
    if not quiet:
        return
    order = sorted(quiet, key=quiet.__getitem__)
    yield Finding(
        "layers have gone quiet",
        2.0,
        tuple(order),
        f"The output of {order[0]} has a root mean square of {quiet[order[0]]:.1e}.",
        since=history.since(order[0], QUIET),
        leads="gradients that vanish in half precision",
        otherwise=f"at least {QUIET.bound:g}",
        margin=QUIET.bound / max(quiet[order[0]], 1e-30),
    )
