"""What a watch tells of a run: its blocks by depth while it goes on, and at its end what went wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from normkit.lab import logs
from normkit.watching.sample import Row
from normkit.watching.watching import Watch

SIGNALS = ("activations", "attention", "gradients", "updates")  # spectra take a good part of a small model's step


def watch_run(model: nn.Module, optimizer: Any) -> Watch:
    """Return the watch of a run, which says itself which of its steps are looked at."""
    watch = Watch(model, optimizer, signals=SIGNALS)
    watch.tries = False  # what is tried within a time does not come out alike twice
    return watch


class Depths:
    """Writes a line a sample: of each block the root mean square of what it gives, and its gradient's length."""

    def __init__(self, log: logs.Log):
        self.log = log

    def write(self, watch: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""
        numbers = dict(zip(row.columns, values.tolist(), strict=True))
        layers = [
            {"name": block, "depth": depth, "gradient": _gradient(block, numbers), "activation": size}
            for depth, block in enumerate(watch.facts["blocks"])
            if (size := numbers.get((block, "rms"))) is not None
        ]
        self.log.write(logs.PROBE, step=step, layers=logs.nan_to_none(layers))

    def close(self, watch: Any) -> None:
        """Leave the log to the run."""


def _gradient(block: str, numbers: Mapping[tuple[str, str], float]) -> float:
    """The length of the gradient of all the block's parameters; NaN of a step that the loss scale left out."""
    lengths = {where: value for (where, what), value in numbers.items() if what == "gradient"}
    if not lengths:
        return math.nan
    inside = f"{block}." if block else ""
    return math.sqrt(sum(value**2 for where, value in lengths.items() if where.startswith(inside)))


def judge(watch: Watch) -> dict[str, Any]:
    """Return what went wrong, as JSON has it."""
    return json.loads(json.dumps(watch.diagnosis().to_dict(), default=float))
