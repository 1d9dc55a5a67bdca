"""Steps side by side: what rooms that race single layers against other libraries share."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from normkit.bench import report, timing
from normkit.bench.timing import Entrant

OURS = "normkit"

COLUMNS: dict[str, Callable[[Any], str]] = {
    "method": lambda row: row["method"],
    "of": lambda row: row["entrant"],
    "size": lambda row: row["size"],
    "pass": lambda row: row["pass"],
    "time": lambda row: report.duration(row["seconds"]),
    "over normkit's": lambda row: report.times(row["relative"]),
}
LEGEND = {
    "pass": "training: the forward pass and all gradients",
    "time": "median of a call",
    "over normkit's": report.RIVALS,
}


def race(
    method: str, size: str, what: str, entrants: Mapping[str, Callable[[], object]], repeats: int, clock: timing.Clock
) -> list[dict[str, Any]]:
    """Race the calls, normkit's among them, and return a row for each."""
    times = timing.race({name: Entrant(call) for name, call in entrants.items()}, repeats, clock)
    return [
        {
            "method": method,
            "entrant": name,
            "size": size,
            "pass": what,
            "seconds": measurement.median,
            "low": measurement.low,
            "high": measurement.high,
            "rounds": measurement.rounds,
            "relative": None if name == OURS else measurement.median / times[OURS].median,
            "absent": {},
        }
        for name, measurement in times.items()
    ]


def install(name: str) -> Any:
    """Import another library, or return None where it is not there or does not import."""
    try:
        return importlib.import_module(name) if importlib.util.find_spec(name.partition(".")[0]) else None
    except ImportError:
        return None


def missing(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Tell in every row which libraries did not race."""
    absent = {name: f"pip install {name} brings it" for name in names if install(name) is None}
    return [{**row, "absent": absent} for row in rows]
