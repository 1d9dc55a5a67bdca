"""Tables of what was measured."""

from __future__ import annotations

import csv
import datetime
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from normkit import doctor
from normkit.columns import aligned

RIVALS = "its time over normkit's, above 1 where normkit is faster"
LEGEND = {
    "time": "median of a call; training is the forward pass and all gradients",
    "torch": f"PyTorch's module for the same numbers: {RIVALS}",
    "layer_norm": f"torch's LayerNorm: {RIVALS}",
    "eager": f"the formula in plain PyTorch: {RIVALS}",
    "compiled": f"the formula under torch.compile: {RIVALS}",
    "fused add": "the time of a residual addition, then the norm, over that of both in one call; the two race apart",
    "copy": "the time over that of a plain copy of the input",
    "limit": "the share of that copy's speed at which the bytes that must move were moved; above 1 from a cache",
    "memory": "the most held at once, over layer_norm's or else torch's",
}


def machine() -> dict[str, Any]:
    """Return where and when: what each number must carry with it."""
    kernels = doctor.cpu_kernels()["C kernels"]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {**doctor.machine(), "C kernels": kernels, "date": datetime.date.today().isoformat(), "load": load}


def ratio(row: Mapping[str, Any], other: str) -> float | None:
    """Return the time of another entrant over normkit's.

    >>> ratio({"seconds": {"normkit": 2.0, "torch": 3.0}}, "torch")
    1.5
    """
    seconds = row["seconds"]
    return seconds[other] / seconds["normkit"] if other in seconds else None


def over_copy(row: Mapping[str, Any]) -> float:
    """Return normkit's time over that of a plain copy of the input."""
    return row["seconds"]["normkit"] / row["seconds"]["copy"]


def of_limit(row: Mapping[str, Any]) -> float:
    """Return the share of the memory's speed that was reached.

    >>> of_limit({"copied_bytes": 8, "least_bytes": 20, "seconds": {"copy": 2.0, "normkit": 10.0}})
    0.5
    """
    bandwidth = row["copied_bytes"] / row["seconds"]["copy"]
    return row["least_bytes"] / bandwidth / row["seconds"]["normkit"]


def fused_gain(row: Mapping[str, Any]) -> float | None:
    """Return the time of addition and norm apart over that of both at once."""
    seconds = row["seconds"]
    return seconds["add, norm"] / seconds["add_norm"] if "add_norm" in seconds and "add, norm" in seconds else None


def memory(row: Mapping[str, Any]) -> float | None:
    """Return the memory held at once over that of torch's LayerNorm, or of its module for the same numbers."""
    held = row["peak_bytes"]
    other = held.get("layer_norm") or held.get("torch")
    return held["normkit"] / other if other else None


Columns = Mapping[str, Callable[[Mapping[str, Any]], str]]  # the head of each, and what it shows of a row

COLUMNS: Columns = {
    "method": lambda row: row["method"],
    "size": lambda row: row["size"] + (" cl" if row["strides"] == "channels-last" else ""),
    "type": lambda row: row["dtype"],
    "pass": lambda row: row["pass"],
    "time": lambda row: duration(row["seconds"]["normkit"]),
    "torch": lambda row: times(ratio(row, "torch")),
    "layer_norm": lambda row: times(ratio(row, "layer_norm")),
    "eager": lambda row: times(ratio(row, "eager")),
    "compiled": lambda row: times(ratio(row, "compiled")),
    "fused add": lambda row: times(fused_gain(row)),
    "copy": lambda row: times(over_copy(row)),
    "limit": lambda row: f"{of_limit(row):.0%}",
    "memory": lambda row: times(memory(row)),
    "path": lambda row: row["path"],
}


def duration(seconds: float) -> str:
    """Write a time with three digits.

    >>> duration(0.0000123), duration(0.0456)
    ('12.3 µs', '45.6 ms')
    """
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms")
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def times(value: float | None) -> str:
    """Write a ratio, or a dash for none."""
    return "-" if value is None else f"{value:.2f}"


def cells(rows: Sequence[Mapping[str, Any]], columns: Columns = COLUMNS) -> list[list[str]]:
    """Return the table with its head; columns in which nobody has a value are left out."""
    table = [list(columns)] + [[write(row) for write in columns.values()] for row in rows]
    kept = [i for i, column in enumerate(zip(*table, strict=True)) if set(column[1:]) != {"-"}]
    return [[line[i] for i in kept] for line in table]


def text(record: Mapping[str, Any], columns: Columns = COLUMNS, meanings: Mapping[str, str] = LEGEND) -> str:
    """Write the machine, the table and what the columns mean, for a terminal."""
    table = cells(record["rows"], columns)
    return "\n".join([headline(record), "", *aligned(table), "", *legend(table[0], meanings), *remarks(record)])


def markdown(record: Mapping[str, Any], columns: Columns = COLUMNS, meanings: Mapping[str, str] = LEGEND) -> str:
    """Write the same for a page."""
    head, *body = cells(record["rows"], columns)
    lines = ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body]]
    notes = [f"- {line}" for line in [*legend(head, meanings), *remarks(record)]]
    return "\n".join([headline(record), "", *lines, "", *notes])


def legend(columns: Sequence[str], meanings: Mapping[str, str]) -> list[str]:
    """Say what the columns of a table mean."""
    return [f"{name}: {meanings[name]}" for name in columns if name in meanings]


def headline(record: Mapping[str, Any]) -> str:
    """Say in a line where this was measured."""
    where = record["machine"]
    return (
        f"{where['processor']}, {where['threads']} threads, {where['system']}, torch {where['torch']}, "
        f"normkit {where['normkit']}, C kernels {where['C kernels']}, {where['date']}"
    )


def remarks(record: Mapping[str, Any]) -> list[str]:
    """Say what the import costs, who did not race, what failed, and whether the machine was busy."""
    absent = {f"{name} did not race: {reason}" for row in record["rows"] for name, reason in row["absent"].items()}
    failed = [f"{case} failed: {reason}" for case, reason in record["failed"].items()]
    first = []
    if "first_seconds" in record:
        first.append(f"import normkit and its first norm: {record['first_seconds'] * 1e3:.0f} ms after import torch.")
    if record["machine"].get("clock") == "process_time":
        first.append("Times are those of the processor, on one thread.")
    load = busy(record["machine"]) if record.get("timed", True) else ()
    return [*record.get("notes", ()), *first, *load, *sorted(absent), *failed]


def busy(where: Mapping[str, Any]) -> list[str]:
    """Warn of a machine that had other work when the benchmark began.

    >>> busy({"load": 3.0, "cores": 2})
    ['The machine was busy when this began (load 3.0 on 2 cores): these times are not to be trusted.']
    >>> busy({"load": 1.0, "cores": 2})
    []
    """
    if where["load"] <= where["cores"] / 2:
        return []
    load = f"load {where['load']:.1f} on {where['cores']} cores"
    return [f"The machine was busy when this began ({load}): these times are not to be trusted."]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write one line a row, with its plain values; a table of seconds, quartiles, ... has a column for each entrant.

    >>> print(csv_text([{"method": "eln", "seconds": {"normkit": 0.5}}]), end="")
    method,seconds: normkit
    eln,0.5
    """
    flat = [dict(_plain(row)) for row in rows]
    file = io.StringIO()
    writer = csv.DictWriter(file, dict.fromkeys(key for row in flat for key in row), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return file.getvalue()


def _plain(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}: {name}", inner) for name, inner in value.items())
        else:
            yield key, value
