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
    shares = {}
    for name, series in history.of("unseen").items():
        samples = series[~np.isnan(series)]
        rows = history.facts["shapes"].get(name, [0])[0]
        if rows <= BYTES or "pos" in name.lower() or len(samples) < FEWEST:
            continue
        if samples[-1] > SHARE and samples[len(samples) // 2] - samples[-1] < SAME:
            shares[name] = float(samples[-1])
    order = sorted(shares, key=lambda name: -shares[name])
    if order:
        rows = history.facts["shapes"].get(order[0], [0])[0]
        yield Finding(
            "rows of an embedding are never seen",
            2.6,
            tuple(order),
            f"{shares[order[0]]:.0%} of the {rows} rows of {order[0]} have had no gradient in {history.steps[-1]} "
            "steps, and since the middle of the run no new ones came.",
            leads="rows that stay as they were drawn, which answer a word of theirs by chance",
            otherwise=f"less than {SHARE:.0%}, or new rows in the second half",
            margin=shares[order[0]] / SHARE,
            remedies=(
                Remedy(
                    "a smaller table", "as many rows as the tokenizer has words; or look at the tokenizer", runs=False
                ),
            ),
        )
