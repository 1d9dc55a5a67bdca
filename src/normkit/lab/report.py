"""The report of a comparison, from its logs alone: a ranked table, and a page that needs nothing but a browser.

rows = report.summary("normkit-report")       # one row a variant, as data
print(report.table(rows))                      # the same as text
report.write("normkit-report")                 # normkit-report/index.html
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from normkit.lab import figures, findings
from normkit.lab.files import Folder, replace_file
from normkit.lab.findings import Interval
from normkit.lab.history import Comparison, load
from normkit.lab.ranking import CRASHED, DIVERGED, DONE, Row, rank

__all__ = ["Row", "answer", "load", "rich_table", "summary", "table", "write"]

HUGE = 1e5
NAME, WORDS, GAP = 20, 13, 2  # characters of a terminal's line: for a name, for a finding, between columns
TOLD = (findings.BETTER, findings.WORSE)
DASH_LENGTHS = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}


class Column(NamedTuple):
    """A column of the table.

    words: whether it holds words rather than numbers; brief: whether a terminal, which is narrow, shows it too.
    """

    title: str
    text: Callable[[Row], str]
    words: bool = False
    brief: bool = False


def summary(folder: str | Path) -> list[Row]:
    """Return the rows of the ranked table, the best first; failed variants are among them, last."""
    return rank(load(folder))


def table(rows: Sequence[Row], width: int | None = None) -> str:
    """Return the ranked table as text; ``width`` is the terminal's by default, columns that do not fit are left out."""
    from rich.console import Console

    console = Console(width=width or terminal_width(), color_system=None)
    with console.capture() as captured:
        console.print(rich_table(rows, width))
    return captured.get().rstrip("\n")


def rich_table(rows: Sequence[Row], width: int | None = None) -> Any:
    """Return the ranked table for a rich console, with the columns that fit in ``width``."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    made.add_column("", no_wrap=True)
    longest = max(len(row.variant) for row in rows)
    made.add_column("variant", overflow="fold", no_wrap=longest <= NAME)
    columns = fitting(rows, (width or terminal_width()) - min(longest, NAME) - 2 * GAP - 2)
    for column in columns:
        title = column.title.replace(" ", "\n", 1)
        made.add_column(title, justify="left" if column.words else "right", no_wrap=not column.words)
    for row in rows:
        cells = [Text(cell) for cell in (place(row), row.variant, *(column.text(row) for column in columns))]
        made.add_row(*cells, style="bold" if row.is_baseline else None)
    return made


def fitting(rows: Sequence[Row], room: int) -> list[Column]:
    """Return the first of a terminal's columns, as many as there is room for."""
    columns = [column for column in columns_of(rows) if column.brief]
    ends = accumulate(GAP + (WORDS if column.words else _widest(rows, column)) for column in columns)
    return [column for column, end in zip(columns, ends, strict=True) if end <= room]


def terminal_width() -> int:
    """Return the terminal's width, 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def answer(rows: Sequence[Row]) -> list[str]:
    """Say in sentences what was found."""
    baseline = next(row for row in rows if row.is_baseline)
    digits = decimals(row.final.mean for row in rows)
    if baseline.status in (DIVERGED, CRASHED):
        told = [f"The baseline {baseline.variant} {baseline.happened}, so nothing can be told against it."]
    else:
        told = [_compared(row, baseline.variant, digits) for row in rows if row.finding and row.finding.word in TOLD]
        told += _grouped(rows, findings.SAME, f"No difference from {baseline.variant} was found for {{}}.")
        few = f"Too few seeds to tell {{}} from {baseline.variant}: {findings.ENOUGH} seeds of both must be finished."
        told += _grouped(rows, findings.FEW, few)
    failed = [row for row in rows if row.status in (DIVERGED, CRASHED) and not row.is_baseline]
    return [*told, *(f"{row.variant} {row.happened}." for row in failed), *_edges(rows), *_left(rows)]


def write(folder: str | Path) -> Path:
    """Write ``index.html`` into the comparison's folder, and return its path.

    The page holds the table, the pictures and the program that draws them; a browser fetches nothing else.
    """
    comparison = load(folder)
    path = Folder(comparison.folder).report
    replace_file(path, page(comparison))
    return path


def page(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(files("normkit.lab").joinpath("report.html").read_text(encoding="utf-8"))
    pictures = figures.pictures(comparison)
    return template.render(
        **content(comparison),
        pictures=pictures,
        figures=Markup(_json([picture["figure"] for picture in pictures])),
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        swatch=swatch,
    )


def content(comparison: Comparison) -> dict[str, Any]:
    """Return what the page says in words and numbers."""
    rows = rank(comparison)
    columns = columns_of(rows)
    looks = {name: figures.style(comparison, name) for name in comparison.variants}
    return {
        "title": f"{len(rows)} variants compared on {_short(comparison.settings.get('model', 'a model'))}",
        "subtitle": subtitle(comparison),
        "answer": answer(rows),
        "columns": [Column("variant", place, words=True), *columns],
        "rows": [
            {
                "rank": place(row),
                "name": row.variant,
                "look": looks[row.variant],
                "baseline": row.is_baseline,
                "cells": [(column, column.text(row)) for column in columns],
            }
            for row in rows
        ],
        "keys": [{"name": row.variant, "look": looks[row.variant]} for row in rows],
        "reading": reading(comparison),
        "notes": comparison.notes,
        "command": shlex.join(comparison.plan.get("command") or ["normkit", "compare"]),
        "settings": settings(comparison),
        "errors": [(run.name, run.end["traceback"]) for run in comparison.runs if run.end.get("traceback")],
    }


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """Return the columns for which some row has a number."""
    digits = decimals(row.final.mean for row in rows)
    baseline = next(row.variant for row in rows if row.is_baseline)
    baseline = baseline if len(baseline) <= NAME else "the baseline"
    every = [
        Column("final loss", lambda row: with_interval(row.final, digits), brief=True),
        Column(f"minus {baseline}'s", lambda row: difference(row, digits), brief=True),
        Column("finding", finding, words=True, brief=True),
        Column("p", lambda row: chance(row.finding.p) if row.finding else "", brief=True),
        Column("best loss", lambda row: fixed(row.best.mean, digits)),
        Column("accuracy", lambda row: "" if row.metric is None else f"{row.metric:.1%}"),
        Column(f"steps to {baseline}'s loss", lambda row: rounded(row.steps_to_baseline)),
        Column("seconds", lambda row: "" if row.seconds is None else f"{row.seconds:,.1f}"),
        Column(f"{rows[0].unit}/s", lambda row: rounded(row.tokens_per_second), brief=True),
        Column("peak memory", lambda row: memory(row.peak_memory), brief=True),
        Column("learning rate", lambda row: "" if row.lr is None else f"{row.lr:g}"),
        Column("seeds", lambda row: f"{row.seeds} of {row.planned}"),
    ]
    return [column for column in every if any(column.text(row) for row in rows)]


def difference(row: Row, digits: int) -> str:
    """Write how far a row lies from the baseline."""
    return with_interval(row.finding.difference, digits, "+") if row.finding else ""


def finding(row: Row) -> str:
    """Say what may be said of a row against the baseline, and what is missing."""
    said = row.finding.word if row.finding else "baseline" if row.is_baseline else ""
    return "; ".join(filter(None, (said, row.happened)))


def reading(comparison: Comparison) -> str:
    """Say how the table is to be read."""
    loss = "on held-out data" if comparison.held_out else "on the training data"
    return (
        f"Losses are {loss}, the mean over seeds ± a {1 - findings.LEVEL:.0%} confidence interval (t). The difference "
        f"from {comparison.baseline} is taken seed by seed, with the same batches in the same order. A finding is a "
        "paired t-test whose p is corrected for the number of variants (Holm), so the chance of any false finding in "
        f"the table is {findings.LEVEL:.0%}; the interval of a difference is not corrected. Steps to "
        f"{comparison.baseline}'s loss are those until a seed has its final loss, the mean over seeds; empty where a "
        "seed never has."
    )


def subtitle(comparison: Comparison) -> str:
    """Say in a line what was trained on what, and for how long."""
    given = comparison.settings
    length = f"{given['steps']:,} steps" if given.get("steps") else f"{given.get('seconds', '?')} seconds"
    done = sum(run.status == DONE for name in comparison.variants for run in comparison.final_runs(name))
    planned = len(comparison.variants) * comparison.seeds
    batch = f"batch {given['batch']}" if "batch" in given else ""
    parts = [_short(given.get("data", "")), length, batch, f"{done} of {planned} full runs finished"]
    return " · ".join(filter(None, parts))


def settings(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return every setting, by group."""
    plan = comparison.plan
    variants = [
        (v["name"], " · ".join(f"{key} {value}" for key, value in v.items() if key != "name")) for v in plan["variants"]
    ]
    return [
        ("Settings", _lines({**comparison.settings, "baseline": comparison.baseline})),
        ("Variants", variants),
        ("Environment", _lines(plan.get("environment", {}))),
    ]


def swatch(look: Mapping[str, Any]) -> Any:
    """Return a line in a variant's colour and dash."""
    from markupsafe import Markup

    return Markup(
        '<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">'
        '<line x1="1" x2="29" y1="6" y2="6" stroke-width="3" style="stroke: {}" stroke-dasharray="{}"/></svg>'
    ).format(look["colour"], DASH_LENGTHS[look["dash"]])


def place(row: Row) -> str:
    """Return the rank, or nothing for a variant that has none."""
    return "" if row.rank is None else f"{row.rank}."


def decimals(values: Iterable[float]) -> int:
    """Return how many decimals show the smallest of some losses to four digits; at most eight.

    >>> decimals([2.31, 12.5]), decimals([0.0123]), decimals([])
    (3, 5, 3)
    """
    found = [abs(value) for value in values if math.isfinite(value) and value]
    return min(8, max(0, 3 - math.floor(math.log10(min(found))))) if found else 3


def with_interval(found: Interval, digits: int, sign: str = "") -> str:
    """Write a mean and how far its interval reaches."""
    mean = fixed(found.mean, digits, sign)
    return mean if math.isnan(found.half) else f"{mean} ± {fixed(found.half, digits)}"


def fixed(value: float, digits: int, sign: str = "") -> str:
    """Write a number with so many decimals, a huge one with its power of ten, and nothing for NaN.

    >>> fixed(2.34567, 3), fixed(1234567.8, 3)
    ('2.346', '1.23e+06')
    """
    if math.isnan(value):
        return ""
    return f"{value:{sign}.{digits}f}" if abs(value) < HUGE else f"{value:{sign}.3g}"


def rounded(value: float | None) -> str:
    """Write a count.

    >>> rounded(12345.6)
    '12,346'
    """
    return "" if value is None else f"{value:,.0f}"


def memory(value: float | None) -> str:
    """Write bytes in the unit that suits them.

    >>> memory(1.5 * 2**30), memory(300 * 2**20)
    ('1.5 GiB', '300 MiB')
    """
    if value is None:
        return ""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def chance(p: float) -> str:
    """Write a p-value, and nothing for NaN.

    >>> chance(0.0123), chance(1e-5)
    ('0.012', '<0.001')
    """
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.2g}"


def _compared(row: Row, baseline: str, digits: int) -> str:
    assert row.finding is not None
    word, (mean, half, seeds), p = row.finding
    size = f"{with_interval(Interval(abs(mean), half, seeds), digits)} {'below' if mean < 0 else 'above'}"
    odds = f"p = {chance(p)}".replace("= <", "< ")
    return f"{row.variant} is {word} than {baseline}: its final loss is {size} ({odds}, {seeds} seeds)."


def _widest(rows: Sequence[Row], column: Column) -> int:
    """Return the length of a column's longest text; its title stands on two lines."""
    return max(map(len, [*column.title.split(" ", 1), *(column.text(row) for row in rows)]))


def _grouped(rows: Sequence[Row], word: str, sentence: str) -> list[str]:
    names = [row.variant for row in rows if row.finding and row.finding.word == word]
    return [sentence.format(", ".join(names))] if names else []


def _edges(rows: Sequence[Row]) -> list[str]:
    """Name the variants whose search ended with its best learning rate at an end."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.edge:
            found.setdefault(f"{row.edge} learning rate tried, {row.lr:g},", []).append(row.variant)
    return [
        f"The search ended at its edge: the {said} was the best for {', '.join(names)}; a better one may lie beyond."
        for said, names in found.items()
    ]


def _left(rows: Sequence[Row]) -> list[str]:
    left = [row.variant for row in rows if row.status not in (DONE, DIVERGED, CRASHED)]
    return [f"Not finished: {', '.join(left)}; the same command goes on from here."] if left else []


def _lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key.replace("_", " "), _said(value)) for key, value in given.items()]


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(value: Any) -> str:
    """Return a path's last part, and any other text as it is."""
    return Path(str(value)).name if str(value).startswith("/") else str(value)


def _json(value: Any) -> str:
    """Write JSON that may stand inside a script element; plotly.js leaves a gap at null."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
