"""The ranked table: for a terminal, which is narrow, and for the page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from normkit.lab.plan import measures
from normkit.lab.report.ranking import Row
from normkit.lab.report.words import (
    chance,
    decimals,
    faster,
    memory,
    percent,
    scale_of,
    seconds,
    with_decimals,
    with_interval,
    write_count,
)
from normkit.safe import safe

NAME, WORD, GAP = 20, 16, 2  # characters of a terminal's line: for a name, for a word, between columns
ENDLESS = 10_000  # characters of a line that nothing limits
EDGES = 2 * GAP  # beside the place and the name: a gap after each
ENOUGH = 0.5  # the share of the rows that must have something to say, for a column to stay


class Column(NamedTuple):
    """A column of the table.

    words: whether it holds words rather than numbers; brief: whether a terminal, which is narrow, shows it too.
    kept: whether it stays also where most rows have nothing to say. cost: whether it tells what a run took rather than
    what came of it; the page has a table of its own for that.
    """

    title: str
    text: Callable[[Any], str]
    words: bool = False
    brief: bool = False
    kept: bool = False
    cost: bool = False


class Line(NamedTuple):
    """A line of a table beside the ranked one: a name, what its columns are of, and the variant whose look it has."""

    variant: str
    of: Any
    drawn_as: str
    place: None = None
    is_baseline: bool = False


class Section(NamedTuple):
    """A table beside the ranked one."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """Return the columns that have enough to say."""
    scale, measure = scale_of(rows), rows[0].measure
    digits = decimals(row.final.mean for row in rows)
    baseline = next(row.variant for row in rows if row.is_baseline)
    baseline = baseline if len(baseline) <= NAME else "the baseline"
    by_loss, by_accuracy = measure.key == measures.LOSS, measure.key == measures.ACCURACY
    every = [
        Column("final loss" if by_loss else measure.name, lambda row: scale.value(row.measured), brief=True, kept=True),
        Column(
            f"minus {baseline}'s{', points' * by_accuracy}",
            lambda row: scale.difference(row.finding.difference) if row.finding else "",
            brief=True,
            kept=True,
        ),
        Column("finding", finding, words=True, brief=True, kept=True),
        Column("could find", lambda row: scale.size(row.finding.least) if row.finding else "", brief=True, kept=True),
        Column("time a step", lambda row: faster(row.speed), brief=True, kept=True),
        Column("p", lambda row: chance(row.finding.p) if row.finding else "", brief=True, kept=True),
        Column("accuracy", lambda row: "" if by_accuracy else percent(row.accuracy), brief=True),
        Column("clients' accuracy", lambda row: percent(row.clients) * (measure.key != measures.CLIENTS), brief=True),
        Column("worst client", lambda row: percent(row.worst) * (measure.key != measures.WORST), brief=True),
        Column("spread over clients", lambda row: percent(row.spread)),
        Column("sent a round", lambda row: memory(row.sent), cost=True),
        Column("final loss", lambda row: "" if by_loss else with_interval(row.final, digits)),
        Column("best loss", lambda row: with_decimals(row.best.mean, digits), cost=True),
        Column(f"steps to {baseline}'s loss", lambda row: write_count(row.steps_to_baseline), cost=True),
        Column("seconds", lambda row: seconds(row.seconds), cost=True),
        Column("CPU seconds", lambda row: seconds(row.cpu_seconds), cost=True),
        Column(f"{rows[0].unit}/s", lambda row: write_count(row.tokens_per_second), brief=True, cost=True),
        Column("peak memory", lambda row: memory(row.peak_memory), brief=True, cost=True),
        Column("parameters", lambda row: write_count(row.parameters), cost=True),
        Column("learning rate", lambda row: f"{row.lr:g}" if row.lr else "", cost=True),
        Column("weight decay", lambda row: "" if row.decay is None else f"{row.decay:g}", cost=True),
        Column(
            "seeds",
            lambda row: f"{row.seeds}" if row.seeds >= row.planned else f"{row.seeds} of {row.planned}",
            cost=True,
        ),
    ]
    return [column for column in every if speaks(column, rows)]


def speaks(column: Column, rows: Sequence[Row]) -> bool:
    """Whether a column has something to say, and unless it stays for that, in most rows with finished seeds."""
    ended = [bool(column.text(row)) for row in rows if row.seeds]
    return any(column.text(row) for row in rows) and (column.kept or sum(ended) > ENOUGH * len(ended))


def finding(row: Row) -> str:
    """Say how a row compares with the baseline, and what is missing."""
    verdict = row.finding.word if row.finding else "baseline" if row.is_baseline else ""
    control = "control" if row.is_twin else ""
    return "; ".join(filter(None, (control, verdict, row.happened)))


def place(row: Row | Line) -> str:
    """Return the place, or the places that a variant may have that others may have as well."""
    if row.place is None:
        return ""
    best, worst = row.place
    return f"{best}" if best == worst else f"{best}-{worst}"


def table(rows: Sequence[Row], width: int | None = None) -> str:
    """Return the ranked table as text: all columns, as a file takes them, or those of a terminal of a width."""
    return as_text(rich_table(rows, width), width)


def section_text(section: Section, width: int | None = None) -> str:
    """Return a table beside the ranked one as text, below its title."""
    return f"{safe(section.title, 'terminal')}\n{as_text(rich_columns(section.lines, section.columns, width), width)}"


def as_text(shown: Any, width: int | None = None) -> str:
    """Return what a rich console would show, without colours."""
    from rich.console import Console

    console = Console(width=width or ENDLESS, color_system=None, markup=False)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def rich_table(rows: Sequence[Row], width: int | None = None) -> Any:
    """Return the ranked table for a rich console; columns that do not fit in ``width`` follow in tables below."""
    return rich_columns(rows, [column for column in columns_of(rows) if column.brief or width is None], width)


def rich_columns(rows: Sequence[Row | Line], columns: Sequence[Column], width: int | None = None) -> Any:
    """Return some columns for a rich console, in as many tables as they need."""
    from rich.console import Group

    names = ("variant", *(break_name(safe(row.variant, "terminal")) for row in rows))
    first = max(len(line) for name in names for line in name.split("\n"))
    first += max(len(place(row)) for row in rows) + EDGES
    return Group(*(_rich_part(rows, part) for part in parts(rows, columns, (width or ENDLESS) - first)))


def _rich_part(rows: Sequence[Row | Line], columns: Sequence[Column]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    names = {row.variant: break_name(safe(row.variant, "terminal")) for row in rows}
    table.add_column("", no_wrap=True)
    table.add_column("variant", no_wrap=True)
    for column in columns:
        title = Text(safe(column.title, "terminal").replace(" ", "\n", 1))
        least = _longest_word(rows, column)
        if column.words:
            table.add_column(title, min_width=least)
        else:
            table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(cell) for cell in (place(row), names[row.variant])]
        cells += [Text(safe(column.text(row), "terminal")) for column in columns]
        table.add_row(*cells, style="bold" if row.is_baseline else None)
    return table


def parts(rows: Sequence[Row | Line], columns: Sequence[Column], room: int) -> list[list[Column]]:
    """Cut columns into parts, each as many as there is room for beside the names, at least one."""
    cut: list[list[Column]] = [[]]
    left = room
    for column in columns:
        width = GAP + _width(rows, column)
        if cut[-1] and width > left:
            cut.append([])
            left = room
        cut[-1].append(column)
        left -= width
    return cut


def _width(rows: Sequence[Row | Line], column: Column) -> int:
    """Return the characters that a column needs; its title stands on two lines, words on as many as they need."""
    texts = [_longest_word(rows, column)] if column.words else [len(column.text(row)) for row in rows]
    return max(*map(len, column.title.split(" ", 1)), *texts)


def _longest_word(rows: Iterable[Row | Line], column: Column) -> int:
    """Return the length of a column's longest word, within reason: an error may hold a path."""
    return min(WORD, max((len(word) for row in rows for word in column.text(row).split()), default=0))


def break_name(name: str) -> str:
    r"""Break a long name where one of its parts ends, never inside a word.

    >>> break_name("groupnorm:num_groups=4+peri-norm")
    'groupnorm:\nnum_groups=4+\nperi-norm'
    """
    lines = [""]
    for part in re.findall(r"[^+:,]*[+:,]?", name):
        if lines[-1] and len(lines[-1]) + len(part) > NAME:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def terminal_width() -> int:
    """Return the terminal's width, 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
