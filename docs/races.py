"""The races on file, method by method: how long a step takes beside what else could stand there, as bars of a chart."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import lineage
import measured
import pictures

from normkit import bench
from normkit.bench import attention as in_attention
from normkit.bench import cases
from normkit.catalog import Card

RACES = ("cpu", "cpu-vectors", "cpu-images", "cpu-activation", "cpu-modules")  # of single methods; the first counts
ENTRANTS = {
    "normkit": "normkit",
    "torch": "torch",
    "layer_norm": "LayerNorm",
    "eager": "eager",
    "compiled": "compiled",
}
STUDIES = {  # of rooms: what a row's time is of
    "cpu-gradient": "a step over the parameters of a GPT-2 of {size} (layers x width)",
    "cpu-manifold": "a training step on matrices, {size} (batch x channels x n x n)",
    "cpu-weight": "a training step of a decoder on {size} (batch x length x width), on each linear layer",
    "cpu-residual": "a training step of a Llama of four layers on {size} (batch x length x width)",
    "cpu-inference": "scores of {size} (queries x gallery x features), normalized",
}
ALONE = "normkit bench"
TEXTS = ("homophone-normalization", "symbolic-forest")  # methods of text whose speed is on file


class Bar(NamedTuple):
    """A bar of a chart: a name, a middle, and the ends of what was seen around it."""

    name: str
    middle: float
    low: float
    high: float


class Race(NamedTuple):
    """A chart: what was measured and how, the unit, the record's file, and the bars."""

    title: str
    unit: str
    file: str
    bars: list[Bar]


def conditions(machine: Mapping[str, Any]) -> str:
    """By which clock a record was made.

    >>> conditions({"clock": "process_time", "threads": 1}), conditions({"threads": 2})
    ("processor's time on one thread", '2 threads')
    """
    if machine.get("clock") == "process_time":
        return "processor's time on one thread"
    return f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}"


@functools.cache
def raced() -> dict[str, list[Race]]:
    """For each method its races."""
    races: dict[str, list[Race]] = {}
    for file in RACES:
        for name, race in singles(file):
            races.setdefault(name, [race])
    studies = itertools.chain.from_iterable(map(study, STUDIES))
    for name, race in itertools.chain(attention(), studies, texts()):
        races.setdefault(name, []).append(race)
    return races


def missing() -> list[str]:
    """The modules that race alone and of which no time is on file."""
    return [
        card.name for card in lineage.cards() if card.name not in raced() and command(card) == f"{ALONE} {card.name}"
    ]


def command(card: Card) -> str:
    """What measures a method: its room's study, or a race alone, which is tried on a small input; else nothing."""
    if card.kind.name == "optimizer":
        return f"normkit bench --room gradient {card.name}"
    if card.name in in_attention.races():
        return f"normkit bench --room attention {card.name}"
    sizes = cases.default_sizes(card) if bench.is_module(card) else ()
    if not sizes:
        return ""
    first, *rest = sizes[-1]
    small = (min(first, 32), *rest[:1], *(min(length, 8) for length in rest[1:]))
    with pictures.quiet():
        try:
            cases.make(cases.Case(card, small, "float32", "contiguous", "training"))
        except Exception:  # it takes what its card draws, and not any size
            return ""
    return f"{ALONE} {card.name}"


def bar(name: str, row: Mapping[str, Any]) -> Bar:
    """A bar of a row that has median and quartiles, in milliseconds."""
    return Bar(name, *(1000 * row[key] for key in ("seconds", "low", "high")))


def memory(peak: float | None) -> str:
    """What a call holds at most."""
    return f"; {peak / 2**20:.3g} MiB at the peak" if peak else ""


def singles(file: str) -> Iterable[tuple[str, Race]]:
    """The races of single methods in a record: each method's training step at one size."""
    record = measured.record(file)
    size = {"cpu": measured.VECTORS, "cpu-vectors": measured.VECTORS, "cpu-images": measured.IMAGES}.get(file)
    for row in record["rows"]:
        if (row["dtype"], row["pass"], row["strides"]) != ("float32", "training", "contiguous"):
            continue
        if row["size"] != (size or row["size"]):
            continue
        names = [name for name in ENTRANTS if row["seconds"].get(name)]
        if "torch" in names and "layer_norm" in names:
            names.remove("layer_norm")
        bars = [
            Bar(
                ENTRANTS[name], *(1000 * value for value in (row["seconds"][name], *row["quartiles"].get(name, [0, 0])))
            )
            for name in names
        ]
        how = f"float32, {conditions(record['machine'])}: median and quartiles"
        peak = memory(row.get("peak_bytes", {}).get("normkit"))
        yield row["method"], Race(f"a training step on {row['size']}, {how}{peak}", "ms", file, bars)


def attention() -> Iterable[tuple[str, Race]]:
    """The races of attention cores beside softmax."""
    rows = [
        row for row in measured.record("cpu-attention")["rows"] if row["size"] == measured.SEQUENCES and row["softmax"]
    ]
    softmax = next((row for row in rows if row["method"] == "softmax"), None)
    for row in rows:
        bars = [bar("normkit", row)]
        if softmax and row["method"] != "softmax":
            bars.append(bar("softmax", softmax))
        title = f"a training step on {row['size']}, {row['form']}: median and quartiles{memory(row.get('peak_bytes'))}"
        yield row["method"], Race(title, "ms", "cpu-attention", bars)


def texts() -> Iterable[tuple[str, Race]]:
    """How many words normalizers of text take a second."""
    record = measured.record("cpu-text")
    for row in record["rows"]:
        if row["entrant"] in TEXTS and "rate" in row:
            title = f"{row['task']}, {conditions(record['machine'])}: thousands a second"
            bars = [Bar("normkit", row["rate"] / 1000, 0.0, 0.0)]
            yield row["entrant"], Race(title, "thousand/s", "cpu-text", bars)


def study(file: str) -> Iterable[tuple[str, Race]]:
    """The races of a room's study, each method beside its yardstick and other libraries."""
    record = measured.record(file)
    how = conditions(record["machine"])
    for name, rows in lines_up(file, record["rows"]).items():
        own = rows[0]
        kept = own.get("state_bytes")
        more = f"; it keeps {kept / 2**20:.3g} MiB between steps" if kept is not None else ""
        kept = own.get("kept")
        more += f"; it keeps {kept / 2**20:.3g} MiB for the backward pass" if kept else ""
        title = f"{STUDIES[file].format(size=own['size'])}, {how}: median and quartiles{more}"
        bars = [bar(_entrant(row), row) for row in rows]
        if "beside" in own:
            bars.append(Bar(own["beside"], 1000 * own["other"], 0.0, 0.0))
        yield name, Race(title, "ms", file, bars)


def lines_up(file: str, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each method, its own first."""
    lines: dict[str, list[dict[str, Any]]] = {}
    if file == "cpu-inference":
        return {row["entrant"]: [row] for row in rows}
    if file in ("cpu-gradient", "cpu-manifold"):
        for row in rows:
            lines.setdefault(row["method"].partition(":")[0], []).append(row)
        ours = {name: [row for row in own if row["entrant"].startswith("normkit")] for name, own in lines.items()}
        return {name: [*ours[name], *(row for row in own if row not in ours[name])] for name, own in lines.items()}
    rows = [row for row in rows if row.get("decoder", "llama") == "llama" and row.get("model", "decoder") == "decoder"]
    yardstick = next(row for row in rows if row["entrant"] in ("plain", "normkit pre-norm"))
    for row in rows:
        name = row["entrant"].removeprefix("normkit ")
        others = [other for other in rows if other["entrant"] in _others(name)]
        beside = [yardstick] if row is not yardstick else []
        lines[name] = [row, *others, *beside]
    return lines


def _others(name: str) -> tuple[str, ...]:
    """What else computes a method in a study of whole models."""
    return (f"plain {name}", f"torch {name.replace('-', '_')}") + ("transformers", "x-transformers") * (
        name == "pre-norm"
    )


def _entrant(row: Mapping[str, Any]) -> str:
    """The name of a bar; where a method is measured in several forms, the form."""
    form = row.get("method", "").partition(":")[2]
    return f"{row['entrant']}, {form}" if form else row["entrant"].removeprefix("normkit ")


if __name__ == "__main__":  # for ``normkit bench $(python docs/races.py)``
    print(*missing())
