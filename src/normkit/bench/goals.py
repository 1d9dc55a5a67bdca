"""What the rooms of test time, low precision and many owners of data share: a table of times, each with its goal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from normkit.bench import report, timing
from normkit.bench.timing import Entrant

Row = dict[str, Any]

COLUMNS: report.Columns = {
    "of": lambda row: row["entrant"],
    "size": lambda row: row["size"],
    "time": lambda row: report.duration(row["seconds"]),
    "beside": lambda row: row["beside"],
    "its time": lambda row: report.duration(row["other"]),
    "ratio": lambda row: f"{row['ratio']:.2f}",
    "goal": lambda row: verdict(row),
    "error": lambda row: f"{row['error']:.3g}" if "error" in row else "-",
}


def verdict(row: Mapping[str, Any]) -> str:
    """Say whether a ratio is what it was to be at most.

    >>> verdict({"ratio": 1.2, "goal": 1.5}), verdict({"ratio": 1.6, "goal": 1.5}), verdict({"ratio": 2.0})
    ('at most 1.5', 'at most 1.5: missed', '-')
    """
    if row.get("goal") is None:
        return "-"
    return f"at most {row['goal']:g}" + ": missed" * (row["ratio"] > row["goal"])


def rows(
    calls: Mapping[str, Any], beside: str, size: str, goal: float | None, repeats: int, clock: timing.Clock
) -> list[Row]:
    """Race calls with the one that they are set beside, and return a row for each of the others."""
    print(f"{beside}, {size}", file=sys.stderr)
    times = timing.race({name: Entrant(call) for name, call in calls.items()}, repeats, clock)
    return [
        {
            "entrant": name,
            "size": size,
            "seconds": times[name].median,
            "low": times[name].low,
            "high": times[name].high,
            "rounds": times[name].rounds,
            "beside": beside,
            "other": times[beside].median,
            "ratio": times[name].median / times[beside].median,
            "goal": goal,
            "absent": {},
        }
        for name in calls
        if name != beside
    ]
