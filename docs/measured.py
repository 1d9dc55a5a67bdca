"""What was measured on our machine, for pages: a training step of methods, and what comparisons of norms came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
VECTORS, IMAGES, SEQUENCES = "4096x768", "32x64x56x56", "1x4x1024x64"
STEP = (
    "Time is that of a forward and a backward pass in float32 on two cores: of norms of vectors on "
    f"{VECTORS}, of norms of images on {IMAGES}, of attention on {SEQUENCES}; beside it, how many times that of "
    "torch's LayerNorm, BatchNorm2d or softmax attention. Other sizes are named, and where it says one thread the time "
    "is that of the processor, beside LayerNorm's in the same race. Empty: not measured."
)


def record(name: str) -> dict[str, Any]:
    """Read a file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def steps() -> dict[str, str]:
    """Return the time of a training step of every method that was measured, by name."""
    vectors, images = _norms("cpu-vectors", VECTORS), _norms("cpu-images", IMAGES)
    rows = [*record("cpu-modules")["rows"], *record("cpu-activation")["rows"]]
    alone = [row for row in rows if row["pass"] == "training"]
    found = {row["method"]: f"{_alone(row)}, one thread" for row in alone}
    for of, usual in ((vectors, vectors["layernorm"]["layer_norm"]), (images, images["batchnorm"]["torch"])):
        found |= {name: _told(seconds["normkit"], seconds["normkit"] / usual) for name, seconds in of.items()}
    return found | {row["method"]: _told(row["seconds"], 1 / row["softmax"]) for row in _attention()}


def _alone(row: dict[str, Any]) -> str:
    """Write a time beside LayerNorm's in the same race, or with its size."""
    seconds, usual = row["seconds"]["normkit"], row["seconds"].get("layer_norm")
    size = "" if row["size"] == VECTORS else f" at {row['size']}"
    return _told(seconds, seconds / usual) + size if usual else f"{_two(1000 * seconds)} ms at {row['size']}"


def _norms(file: str, size: str) -> dict[str, dict[str, float]]:
    wanted = {"size": size, "dtype": "float32", "pass": "training", "strides": "contiguous"}
    rows = [row for row in record(file)["rows"] if all(row[key] == value for key, value in wanted.items())]
    return {row["method"]: row["seconds"] for row in rows}


def _attention() -> list[dict[str, Any]]:
    """Return the rows of the shortest length; of a core's two forms, the one that sees all comes last and counts."""
    rows = [row for row in record("cpu-attention")["rows"] if row["size"] == SEQUENCES and row["softmax"]]
    return sorted(rows, key=lambda row: row["form"])


def _told(seconds: float, ratio: float) -> str:
    """Write a time and how many times another it is.

    >>> _told(0.00213, 0.848)
    '2.1 ms, 0.85 x'
    """
    return f"{_two(1000 * seconds)} ms, {_two(ratio)} x"


def _two(number: float) -> str:
    """Write two digits of a number, and no exponent.

    >>> _two(1166.6), _two(0.848)
    ('1200', '0.85')
    """
    return f"{float(f'{number:.2g}'):g}"


def compared(name: str) -> str:
    """Say what a comparison of ours found, and how it was made."""
    found = record(f"compare-{name}")
    what = f"{found['headline']}. {' '.join(found['answer'])}"
    return f"*Our own comparison*, of {found['date']}, by `{found['command']}`: {what}"
