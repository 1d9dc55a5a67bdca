"""Activations near the end of float16's range."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

LARGEST = 65504.0  # of float16
BITS = 8.0
"""Of the range that is left: within a factor of 8 a few thousand steps of growth, or one unusual batch, overflow."""


def find(history: History) -> Iterator[Finding]:
    """Look at layers that give float16."""
    dtypes = history.facts.get("dtypes", {})
    late = {name: size for name, size in history.late("largest").items() if dtypes.get(name) == "float16"}
    order = sorted((name for name, size in late.items() if size > LARGEST / BITS), key=lambda name: -late[name])
    if order:
        worst = late[order[0]]
        yield Finding(
            "float16 is about to overflow",
            4.2,
            tuple(order),
            f"{order[0]} gives {number(worst)}, in channel {int(history.series(order[0], 'channel')[-1])}: float16 "
            f"ends at {LARGEST:g}.",
            since=history.since_when(order[0], "largest", lambda value: value > LARGEST / BITS),
            leads="infinity in one layer, NaN in all",
            otherwise=f"values below {LARGEST / BITS:g}",
            margin=BITS * worst / LARGEST,
            remedies=(Remedy("bfloat16", "model.bfloat16()  # or torch.autocast(device, dtype=torch.bfloat16)"),),
        )
