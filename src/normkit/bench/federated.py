"""What it takes to put clients' states together, beside reading and writing them.

``--sizes`` is clients x parameters; ten states of GPT-2's size, 124 million numbers in float32 each, by default, which
take 5 GB.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import torch
from torch import Tensor

from normkit.bench import cases, goals, timing
from normkit.bench.goals import COLUMNS
from normkit.federated.rounds import State, Update, accept, average

__all__ = ["COLUMNS", "LEGEND", "TAKES", "measure"]

TAKES = ("sizes",)
SIZES = [(10, 124_000_000)]
GOAL = 1.3
MOST = 1e3  # times as far as the median client
READ, OURS, ROUND = "reading and writing", "average", "a round: checked, averaged"
WIDEST = 2**22  # numbers of an entry
LEGEND = {
    "size": "clients, parameters of each in float32",
    "reading and writing": "a float32 sum of all states, read once, and a new state, a copy of the first",
    "a round": "names, shapes, NaN and each client's distance from what was sent, which is read too; then the average",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race the average, alone and as a part of a round."""
    rows: list[goals.Row] = []
    for size in cases.sizes(options.sizes) if options.sizes else SIZES:
        if len(size) != 2:
            raise ValueError(f"--sizes of this room are clients x parameters, not {'x'.join(map(str, size))}")
        clients, numbers = size
        chance = torch.Generator().manual_seed(0)
        counts = [min(WIDEST, numbers - at) for at in range(0, numbers, WIDEST)]
        updates = [
            Update({f"entry {i}": torch.randn(n, generator=chance) for i, n in enumerate(counts)}, 1 + k)
            for k in range(clients)
        ]
        sent = updates[0].state
        calls = {
            READ: functools.partial(pass_over, updates),
            OURS: functools.partial(average, updates, sent),
            ROUND: functools.partial(whole, updates, sent),
        }
        rows += goals.rows(calls, READ, "x".join(map(str, size)), GOAL, options.repeats, clock)
    return {"rows": rows, "failed": {}}


def whole(updates: list[Update], sent: State) -> dict[str, Tensor]:
    """Look the updates through, and average those that are taken."""
    return average(accept(dict(enumerate(updates)), sent, MOST)[0], sent)


def pass_over(updates: list[Update]) -> dict[str, Tensor]:
    """Read every state, and write a new one as large."""
    for update in updates:
        for value in update.state.values():
            value.sum()
    return {name: value.clone() for name, value in updates[0].state.items()}
