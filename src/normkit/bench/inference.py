"""What it takes to normalize scores of retrieval, beside the matrix product that makes them.

A method is given the similarities of the queries, and those of its banks, which are as large together as the queries;
``--sizes`` is queries x gallery x features.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from normkit import catalog
from normkit.bench import cases, goals, timing
from normkit.bench.goals import COLUMNS
from normkit.inference.retrieval import BANKS
from normkit.threads import threads

__all__ = ["COLUMNS", "LEGEND", "TAKES", "measure"]

TAKES = ("names", "sizes")
SIZES = [(512, 20_000, 256)]
GOAL = 1.5
PRODUCT = "matrix product"
LEGEND = {
    "size": "queries, gallery, features; one thread",
    "ratio": "its time over that of one product of queries and gallery; its own products are not counted",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race every normalization of scores, or those named."""
    names = options.names or [name for name in BANKS if name is not None]
    rows: list[goals.Row] = []
    with threads(1):
        for size in cases.sizes(options.sizes) if options.sizes else SIZES:
            rows += race(size, names, options.repeats, clock)
    return {"rows": rows, "failed": {}}


def race(size: tuple[int, ...], names: list[str], repeats: int, clock: timing.Clock) -> list[goals.Row]:
    """Hold one race."""
    if len(size) != 3:
        raise ValueError(f"--sizes of this room are queries x gallery x features, not {'x'.join(map(str, size))}")
    chance = torch.Generator().manual_seed(0)
    queries, gallery, bank = (
        torch.nn.functional.normalize(torch.randn(count, size[2], generator=chance), dim=1)
        for count in (size[0], size[1], size[0])
    )
    similarity, others = queries @ gallery.T, bank @ gallery.T
    calls: dict[str, Any] = {PRODUCT: lambda: queries @ gallery.T}
    for name in names:
        if BANKS.get(name) is None:
            raise ValueError(
                f"{name!r} normalizes no scores of retrieval; those that do: {', '.join(filter(None, BANKS))}"
            )
        normalizer, banks = catalog.create(name), others.tensor_split(BANKS[name])
        arguments = [bank @ queries.T] if name == "score-normalization" else banks
        calls[name] = lambda normalizer=normalizer, arguments=arguments: normalizer(similarity, *arguments)
    return goals.rows(calls, PRODUCT, "x".join(map(str, size)), GOAL, repeats, clock)
