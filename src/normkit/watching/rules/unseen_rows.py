"""Rows of an embedding that no batch has asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History

SHARE = 0.3  # of the rows: rarer words come late in any text
SAME = 0.02  # by which the share has still fallen since the middle of the run: what is rare would have come
BYTES = 256  # rows: of a table of bytes most are never seen in any text, and it costs nothing
FEWEST = 6  # samples


def find(history: History) -> Iterator[Finding]:
    """Look at the moments of the optimizer: a row without any never had a gradient; places are left out."""
    found = {}
    for name, series in history.of("unseen").items():
        there = series[~np.isnan(series)]
        rows = history.facts["shapes"].get(name, [0])[0]
        if rows <= BYTES or "pos" in name.lower() or len(there) < FEWEST:
            continue
        if there[-1] > SHARE and there[len(there) // 2] - there[-1] < SAME:
            found[name] = float(there[-1])
    order = sorted(found, key=lambda name: -found[name])
    if order:
        rows = history.facts["shapes"].get(order[0], [0])[0]
        yield Finding(
            "rows of an embedding are never seen",
            2.6,
            tuple(order),
            f"{found[order[0]]:.0%} of the {rows} rows of {order[0]} have had no gradient in {history.steps[-1]} "
            "steps, and since the middle of the run no new ones came.",
            leads="rows that stay as they were drawn, which answer a word of theirs by chance",
            otherwise=f"less than {SHARE:.0%}, or new rows in the second half",
            margin=found[order[0]] / SHARE,
            remedies=(
                Remedy(
                    "a smaller table", "as many rows as the tokenizer has words; or look at the tokenizer", runs=False
                ),
            ),
        )
