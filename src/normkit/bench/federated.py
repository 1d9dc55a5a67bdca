"""What it takes to put clients' states together, beside reading and writing them.

``--sizes`` is clients x parameters; ten states of GPT-2's size, 124 million numbers in float32 each, by default, which
take 5 GB.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

from normkit.bench import cases, goals, timing
from normkit.bench.goals import COLUMNS
from normkit.federated.rounds import Update, average

__all__ = ["COLUMNS", "LEGEND", "measure"]

SIZES = [(10, 124_000_000)]
GOAL = 1.3
READ, OURS = "reading and writing", "average"
WIDEST = 2**22  # numbers of an entry
LEGEND = {
    "size": "clients, parameters of each in float32",
    "reading and writing": "a float32 sum of all states, read once, and a state written",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race the average."""
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
        room = {name: torch.empty_like(value) for name, value in sent.items()}
        calls = {READ: lambda u=updates, r=room: passed(u, r), OURS: lambda u=updates, s=sent: average(u, s)}
        rows += goals.rows(calls, READ, "x".join(map(str, size)), GOAL, options.repeats, clock)
    return {"rows": rows, "failed": {}}


def passed(updates: list[Update], room: dict[str, Tensor]) -> None:
    """Read every state, and write one as large."""
    for name, out in room.items():
        for update in updates:
            update.state[name].sum()
        out.copy_(updates[0].state[name])
