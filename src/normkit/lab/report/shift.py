"""What adapters made of shifted streams: which norms they help, and with which they do harm."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from normkit.lab.logs import DONE
from normkit.lab.plan.findings import Interval, interval
from normkit.lab.report.history import Comparison
from normkit.lab.report.tables import Column, Line, Section
from normkit.lab.report.words import join_names, percent, with_decimals, with_interval

ROWS = "shift"


class Adapted(NamedTuple):
    """What became of an adapter on a stream of a variant: means over corruptions, and intervals over seeds.

    before, after: accuracy of the source and of the adapter; gain: the one minus the other; guarded: the accuracy with
        a guard that stops. ece_before, ece: calibration errors.
    clean_before, clean: accuracy on data that are not shifted, of the source and of the adapter behind the stream.
    worst: the least change of accuracy in a step. ms: milliseconds a sample; times: that of the source's.
    right, of: in how many streams the guard was right, and of how many.
    shifts: what was shown. why: why the adapter does not fit; then there are no numbers.
    """

    variant: str
    adapter: str
    stream: str
    shifts: tuple[str, ...]
    before: Interval
    after: Interval
    gain: Interval
    guarded: Interval
    ece_before: Interval
    ece: Interval
    clean_before: Interval
    clean: Interval
    worst: float
    ms: float
    times: float
    right: int
    of: int
    why: str = ""


def adapters_of(comparison: Comparison) -> list[Adapted]:
    """Return what became of each adapter, stream by stream and variant by variant."""
    outcomes = []
    for variant in comparison.variants:
        runs = [run.end.get(ROWS) or [] for run in comparison.final_runs(variant) if run.status == DONE]
        keys = list(dict.fromkeys((row["stream"], row["adapter"]) for rows in runs for row in rows))
        for stream, adapter in keys:
            of_it = [[row for row in rows if (row["stream"], row["adapter"]) == (stream, adapter)] for rows in runs]
            outcomes.append(_over_seeds(variant, adapter, stream, [rows for rows in of_it if rows]))
    return outcomes


def _over_seeds(variant: str, adapter: str, stream: str, seeds: list[list[dict[str, Any]]]) -> Adapted:
    every = [row for rows in seeds for row in rows]
    shifts = tuple(dict.fromkeys(row["shift"] for row in every))
    sound = [rows for some in seeds if (rows := [row for row in some if "why" not in row])]

    def over(of: Callable[[dict[str, Any]], float]) -> Interval:
        return interval(statistics.fmean(of(row) for row in rows) for rows in sound)

    rows = [row for some in sound for row in some]
    names = ("before", "after", "guarded", "ece_before", "ece", "clean_before", "clean")
    numbers = {name: over(operator.itemgetter(name)) for name in names}
    numbers["gain"] = over(lambda row: row["after"] - row["before"])
    ms = statistics.fmean(row["ms"] for row in rows) if rows else float("nan")
    return Adapted(
        variant,
        adapter,
        stream,
        shifts,
        **numbers,
        worst=min((row["worst"] for row in rows), default=float("nan")),
        ms=ms,
        times=ms / statistics.fmean(row["ms_before"] for row in rows) if rows else float("nan"),
        right=sum(row["guard_right"] for row in rows),
        of=len(rows),
        why=next((row["why"] for row in every if "why" in row), ""),
    )


def points(interval: Interval) -> str:
    """Write a difference of accuracies in points.

    >>> points(Interval(-0.123, 0.0456, 5))
    '-12.3 ± 4.6'
    """
    return with_interval(Interval(100 * interval.mean, 100 * interval.half, interval.count), 1, "+")


COLUMNS = [
    Column("accuracy before", lambda line: percent(line.of.before)),
    Column("after", lambda line: percent(line.of.after)),
    Column("gain, points", lambda line: points(line.of.gain)),
    Column("with guard", lambda line: percent(line.of.guarded)),
    Column("guard right", lambda line: f"{line.of.right} of {line.of.of}" if line.of.of else ""),
    Column("worst step", lambda line: with_decimals(100 * line.of.worst, 0, "+")),
    Column("clean before", lambda line: percent(line.of.clean_before)),
    Column("clean after", lambda line: percent(line.of.clean)),
    Column("ECE before", lambda line: percent(line.of.ece_before)),
    Column("ECE after", lambda line: percent(line.of.ece)),
    Column("ms a sample", lambda line: with_decimals(line.of.ms, 3)),
    Column("times the source", lambda line: with_decimals(line.of.times, 1)),
]


def section(comparison: Comparison) -> Section | None:
    """Return the table, None where nothing was shifted."""
    outcomes = [one for one in adapters_of(comparison) if one.of]
    if not outcomes:
        return None
    lines = [Line(f"{one.variant}, {one.adapter}, {one.stream}", one, one.variant) for one in outcomes]
    shifts = dict.fromkeys(part for one in outcomes for shift in one.shifts for part in shift.split(" + "))
    return Section(f"Adapting to shifted data: {', '.join(shifts)}", COLUMNS, lines)


def sentences(comparison: Comparison) -> list[str]:
    """Say of each variant what adapters gained at best and at worst, and with which they are safest."""
    every = adapters_of(comparison)
    by_variant = {name: [one for one in every if one.variant == name and one.of] for name in comparison.variants}
    present = {name: of for name, of in by_variant.items() if of}
    lines = [_extremes(name, of) for name, of in present.items()]
    lowest = {name: min(of, key=_gain) for name, of in present.items()}
    if len(lowest) > 1:
        safest = max(lowest, key=lambda name: _gain(lowest[name]))
        lines.append(f"Adapting is safest with {safest}: at worst {_size(lowest[safest])}.")
    return lines + _misfits([one for one in every if not one.of])


def _misfits(outcomes: Sequence[Adapted]) -> list[str]:
    """Say which adapters fit which variants not, and why."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for one in outcomes:
        names.setdefault((one.adapter, one.why), {})[one.variant] = None
    return [f"{adapter} does not fit {join_names(list(of))}: {why}." for (adapter, why), of in names.items()]


def _gain(one: Adapted) -> float:
    return one.gain.mean


def _size(one: Adapted) -> str:
    return f"{points(one.gain)} points ({one.adapter} on {one.stream})"


def _extremes(name: str, outcomes: Sequence[Adapted]) -> str:
    best, worst = max(outcomes, key=_gain), min(outcomes, key=_gain)
    right, of = sum(one.right for one in outcomes), sum(one.of for one in outcomes)
    sizes = _size(best) if best is worst else f"{_size(worst)} at worst and {_size(best)} at best"
    return f"With {name}, adapting changes accuracy by {sizes}; the guard is right in {right} of {of} streams."


def reading(comparison: Comparison) -> list[str]:
    """Say how the table is to be read."""
    if not comparison.settings.get("shift"):
        return []
    return [
        "Of shifted data, accuracy before is that of the trained model, after that of the adapter, which goes on "
        "learning from the stream without labels; both are means over the corruptions, with an interval over seeds. "
        "With guard is the accuracy where the source answers from the batch on in which the guard speaks. The guard is "
        "right where it speaks before an adapter has 10 right answers fewer than its source among the last 200, and "
        "where it is silent on any other. Worst step is the least change of accuracy in a batch, or in as many as hold "
        "32 samples. Clean is accuracy on held-out data that are not shifted, behind the stream. ECE is the expected "
        "calibration error over 15 bins. Milliseconds are the processor's.",
    ]
