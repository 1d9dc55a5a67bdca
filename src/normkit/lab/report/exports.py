"""The report for elsewhere: the table as data, CSV, LaTeX and HTML, and the pictures one by one."""

from __future__ import annotations

import csv
import functools
import io
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Any

from normkit.lab.plan import measures
from normkit.lab.report import figures
from normkit.lab.report.conclusion import answer, headline
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import Row, rank
from normkit.lab.report.tables import Column, columns_of, place
from normkit.safe import safe

VARIABLE = re.compile(r"^var\(--(\w+)\)(?: ([\d.]+))?$")
OF_A_FINDING = {
    "difference": attrgetter("difference.mean"),
    "difference_half": attrgetter("difference.half"),
    "finding": attrgetter("word"),
    "p": attrgetter("p"),
    "p_equal": attrgetter("equal"),
    "could_find": attrgetter("least"),
}
OF_A_SPEED = {
    "step_time_ratio": attrgetter("median"),
    "step_time_low": attrgetter("low"),
    "step_time_high": attrgetter("high"),
}
OF_A_MEASURE = ("", "_half")  # ends of its columns' names
COLOUR = re.compile(r"--(\w+): (#[0-9a-f]{6})")


def records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the table as numbers, a dictionary a row; None where there is none.

    An interval reaches as far above its mean as below: ``loss`` and ``loss_half``. Differences are from the baseline's.
    A measure of the user's own that is called as another column is ``metric: NAME``.
    """
    table = [_record(row) for row in rows]
    columns = dict.fromkeys(key for record in table for key in record)
    measure = rows[0].measure.name if rows else ""
    taken = not columns.keys().isdisjoint((measure, f"{measure}_half"))
    names = {end: f"{'metric: ' * taken}{measure}{end}" for end in OF_A_MEASURE}
    return [{names.get(key, key): _plain(record.get(key)) for key in columns} for record in table]


def _record(row: Row) -> dict[str, Any]:
    measure = row.measure
    best, worst = row.place or (None, None)
    return {
        "variant": row.variant,
        "baseline": row.is_baseline,
        "best_place": best,
        "worst_place": worst,
        "status": row.status,
        "seeds": row.seeds,
        **dict(zip(OF_A_MEASURE, row.measured[:2], strict=True)),
        **{name: row.finding and value(row.finding) for name, value in OF_A_FINDING.items()},
        **{name: row.speed and value(row.speed) for name, value in OF_A_SPEED.items()},
        **({} if measure.key == measures.LOSS else {"loss": row.final.mean, "loss_half": row.final.half}),
        **({} if measure.key == measures.ACCURACY else {"accuracy": row.accuracy.mean}),
        **_of_clients(row),
        "best_loss": row.best.mean,
        "steps_to_baseline": row.steps_to_baseline,
        "seconds": row.seconds,
        "cpu_seconds": row.cpu_seconds,
        f"{row.unit}_per_second": row.tokens_per_second,
        "peak_memory": row.peak_memory,
        "parameters": row.parameters,
        "lr": row.lr or None,  # 0: a training loop of the user's own has its own
        **({} if row.decay is None else {"weight_decay": row.decay}),
    }


def _of_clients(row: Row) -> dict[str, Any]:
    """Return what is reported of many owners of data; nothing where there is one."""
    if row.sent is None:
        return {}
    metrics = {measures.CLIENTS: row.clients.mean, measures.WORST: row.worst.mean, measures.SPREAD: row.spread.mean}
    return {**metrics, "bytes_per_round": row.sent}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(rows: Sequence[Row]) -> str:
    """Write the table as CSV."""
    table, text = records(rows), io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: safe(value, "csv") if isinstance(value, str) else value for key, value in row.items()} for row in table
    )
    return text.getvalue()


def latex_text(rows: Sequence[Row]) -> str:
    """Write the table that a terminal shows as LaTeX, with the rules of booktabs."""
    columns = _columns(rows)
    lines = [[safe(column.text(row), "latex") for column in columns] for row in rows]
    kinds = "".join("l" if column.words else "r" for column in columns)
    body = [" & ".join(line) + r" \\" for line in lines]
    head = " & ".join(safe(column.title, "latex") for column in columns) + r" \\"
    parts = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([r"% \usepackage{booktabs}", *parts]) + "\n"


def _columns(rows: Sequence[Row]) -> list[Column]:
    named = [Column("", place), Column("variant", lambda row: row.variant, words=True)]
    return [*named, *(column for column in columns_of(rows) if column.brief)]


def html_text(comparison: Comparison) -> str:
    """Write the table and what it comes to as HTML, for a notebook."""
    rows = rank(comparison)
    columns = _columns(rows)
    head = "".join(f"<th>{safe(column.title, 'html')}</th>" for column in columns)
    lines = [
        "".join(
            f'<td style="text-align: {"left" if column.words else "right"}">{safe(column.text(row), "html")}</td>'
            for column in columns
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    paragraphs = "".join(f"<p>{safe(sentence, 'html')}</p>" for sentence in answer(comparison, rows))
    title = f"<p><b>{safe(headline(comparison, rows), 'html')}.</b></p>"
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{paragraphs}"


def picture(comparison: Comparison, title: str | None = None) -> dict[str, Any]:
    """Return the first picture whose title holds some words; the first of all by default."""
    pictures = figures.pictures(comparison)
    matches = [one for one in pictures if title is None or title.lower() in one["title"].lower()]
    if not matches:
        titles = ", ".join(repr(one["title"]) for one in pictures) or "none, since nothing was logged"
        raise ValueError(f"there is no picture {title!r}; there are {titles}")
    return matches[0]


def paint(figure: Any) -> Any:
    """Put the page's light colours in the place of their names."""
    if isinstance(figure, dict):
        return {key: paint(part) for key, part in figure.items() if key != "meta"}
    if isinstance(figure, list):
        return [paint(part) for part in figure]
    match = VARIABLE.match(figure) if isinstance(figure, str) else None
    return figure if match is None else with_opacity(colours()[match[1]], float(match[2] or 1))


def with_opacity(colour: str, opacity: float) -> str:
    """Write a colour as CSS does.

    >>> with_opacity("#ff8000", 0.5)
    'rgba(255, 128, 0, 0.5)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return colour if opacity == 1 else f"rgba({red}, {green}, {blue}, {opacity:g})"


@functools.cache
def colours() -> dict[str, str]:
    """Return the page's colours by name, in the light."""
    palette: dict[str, str] = {}
    for name, colour in COLOUR.findall(files("normkit.page").joinpath("base.html").read_text(encoding="utf-8")):
        palette.setdefault(name, colour)
    return palette
