"""The report of a comparison, from its logs alone: a ranked table, and a page that needs nothing but a browser.

rows = report.summary("normkit-report")       # one row a variant, as data
print(report.table(rows))                      # the same as text
report.write("normkit-report")                 # normkit-report/index.html
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from normkit.columns import number_of
from normkit.lab.files import Folder, replace_file
from normkit.lab.logs import DONE
from normkit.lab.plan import findings, measures
from normkit.lab.plan.handed import in_words
from normkit.lab.plan.settings import FIELDS, JUDGEMENT, Settings, fields
from normkit.lab.report import conclusion, figures, times
from normkit.lab.report.advice import answer, headline
from normkit.lab.report.health import health
from normkit.lab.report.history import Comparison, load
from normkit.lab.report.ranking import Row, rank
from normkit.lab.report.tables import Column, Section, columns_of, place, rich_table, table, terminal_width
from normkit.lab.report.words import join_names
from normkit.page import render

__all__ = ["Row", "answer", "headline", "load", "rich_table", "summary", "table", "terminal_width", "write"]

FEDERATED = (
    "A step is a round: each of {clients} clients takes {local_steps} steps from the server's state, and their states "
    "are put together. The loss is the clients' mean on held-out data like their own: each class counts by its share "
    "among the client's samples. Accuracy is that of the server's state on all held-out data, where batch norms that "
    "stay with the clients are joined; the clients' accuracy is that of each one's state on data like its own. A "
    "twentieth of the training data is the server's, for methods that learn there, and no client's. What is sent a "
    "round goes both ways."
)
DASH_LENGTHS = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3",
    "dashdot": "7 3 2 3",
    "longdash": "11 4",
    "longdashdot": "11 3 2 3",
}


def summary(folder: str | Path) -> list[Row]:
    """Return the rows of the ranked table, the best first; failed variants are among them, last."""
    return rank(load(folder))


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
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return render(template, figures.pictures(comparison), {**content(comparison), "swatch": swatch})


def content(comparison: Comparison) -> dict[str, Any]:
    """Return what the page says in words and numbers."""
    rows = rank(comparison)
    looks = {name: figures.style(comparison, name) for name in comparison.variants}
    return {
        "title": conclusion.headline(comparison, rows),
        "subtitle": subtitle(comparison),
        "answer": conclusion.answer(comparison, rows),
        "tables": [
            {
                "title": title,
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
            }
            for title, columns in (
                ("Ranking", [column for column in columns_of(rows) if not column.cost]),
                ("What a run took", [column for column in columns_of(rows) if column.cost]),
            )
        ]
        + [beside(comparison, one) for one in conclusion.sections(comparison, rows)],
        "keys": [{"name": row.variant, "look": looks[row.variant]} for row in rows],
        "reading": reading(comparison) + conclusion.reading(comparison),
        "health": [(name, looks[name], problems) for name, problems in health(comparison)],
        "notes": comparison.notes,
        "command": "\n".join(_command_line(command) for command in commands(comparison)),
        "settings": settings(comparison),
        "times": times.time_shares(comparison),
        "errors": [(run.name, run.end["traceback"]) for run in comparison.entire.runs if run.end.get("traceback")],
    }


def beside(comparison: Comparison, section: Section) -> dict[str, Any]:
    """Return a table beside the ranked one, as the page takes it."""
    looks = [figures.style(comparison, line.drawn_as) for line in section.lines]
    return {
        "title": section.title,
        "columns": [Column("variant", place, words=True), *section.columns],
        "rows": [
            {
                "rank": "",
                "name": line.variant,
                "look": look,
                "baseline": False,
                "cells": [(column, column.text(line)) for column in section.columns],
            }
            for line, look in zip(section.lines, looks, strict=True)
        ],
    }


def commands(comparison: Comparison) -> list[list[str]]:
    """Return the command that began the comparison, and those that added to it."""
    first = comparison.plan.get("command") or ["normkit", "compare"]
    return [first, *(one["command"] for one in comparison.plan.get("added", []))]


def reading(comparison: Comparison) -> list[str]:
    """Say how the table is to be read."""
    settings, measure, baseline = comparison.settings, measures.of(comparison.settings), comparison.baseline
    on = "on held-out data" if comparison.held_out else "on the training data"
    on = f"as {in_words(settings['train'])} returned it" if settings.get("train") else on
    level, margin = f"{findings.LEVEL:.0%}", settings.get("margin", Settings.margin)
    way = "more" if measure.higher else "less"
    return [
        f"Variants are compared by their {measure.name} {on} ({way} is better), the mean over seeds ± a "
        f"{1 - findings.LEVEL:.0%} confidence interval (t). The difference from {baseline} is taken seed by seed, with "
        "the same batches in the same order; its interval is not corrected.",
        f"Better and worse are paired t-tests, as good as are two such tests, one on either side of {100 * margin:g}% "
        f"of {baseline}'s {measure.name}. Their p is corrected for the number of variants (Holm), so the chance of any "
        f"false better or worse in the table is {level}, and of any false as good as too. Likely better or worse has "
        f"a p up to {findings.LIKELY:.0%}; no difference found is what is none of these.",
        "Could find is the smallest difference that this run would have found four times in five. Places are shared by "
        "variants that could not be told apart.",
        *_of_this_plan(comparison),
        f"Time a step is what a training step takes beyond {baseline}'s, both taken in turn on this machine once all "
        "runs had ended; the interval holds for all variants together. Seconds and CPU seconds are those of a run, the "
        f"mean over seeds. Steps to {baseline}'s loss are those until a seed has its final loss.",
    ]


def _of_this_plan(comparison: Comparison) -> Iterator[str]:
    """Say what only some comparisons need."""
    if loss := next((run.loss for run in comparison.runs if run.loss), ""):
        yield f"The loss is {loss}."
    if comparison.settings.get("until_decided"):
        looks = join_names([str(look) for look in findings.looks(comparison.seeds)])
        yield (
            f"Seeds went on until each variant was decided, {comparison.seeds} at most, with looks after {looks}: each "
            f"look may spend the part of the {findings.LEVEL:.0%} that its new seeds are of all."
        )
    if comparison.settings.get("federated"):
        yield FEDERATED.format(**comparison.settings)
    if added := added_seeds(comparison):
        yield (
            f"Seeds were added when the numbers of {join_names(added)} were there; no p is corrected for having looked "
            "at those."
        )
    if comparison.twins:
        yield (
            f"The control, {join_names(comparison.twins)}, is trained as its baseline is, from a start with the same "
            "law and other numbers: what it differs by is chance."
        )


def added_seeds(comparison: Comparison) -> list[str]:
    """Return how many seeds there were each time when more were added; not where they go on until it is decided."""
    if comparison.settings.get("until_decided"):
        return []
    seeds = [one["seeds"] for one in comparison.plan.get("added", [])]
    return [str(before) for before, after in zip(seeds, [*seeds[1:], comparison.seeds], strict=False) if after > before]


def subtitle(comparison: Comparison) -> str:
    """Say in a line what was trained on what, and for how long."""
    settings = comparison.settings
    unit = "round" if settings.get("federated") else "step"
    length = number_of(settings["steps"], unit) if settings.get("steps") else f"{settings.get('seconds', '?')} seconds"
    done = sum(run.status == DONE for name in comparison.variants for run in comparison.final_runs(name))
    planned = sum(row.planned for row in rank(comparison))
    batch = f"batch {settings['batch']}" if settings.get("batch") else ""
    variants = number_of(len(comparison.variants), "variant")
    what = f"{variants} compared on {_short(settings.get('model', 'a model'))}"
    if settings.get("train"):
        what, length = f"{variants} trained by {in_words(settings['train'])}", ""
    among = f"{number_of(settings['clients'], 'client')}, {settings['split']}" if settings.get("federated") else ""
    parts = [what, _short(settings.get("data", "")), among, length, batch, f"{done} of {planned} full runs finished"]
    return " · ".join(filter(None, parts))


def settings(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return every setting, by group, but for prints of what was named, which say nothing to a reader.

    Nor for what a training loop of the user's own decides itself.
    """
    plan = comparison.entire.plan
    without = {"prints", *(fields(of_loop=True) if comparison.settings.get("train") else ())}
    values = {name: value for name, value in plan["settings"].items() if name not in without}
    layers = {run.variant: run.layers for run in comparison.runs}
    variants = [(v["name"], describe(v, layers.get(v["name"], {}))) for v in plan["variants"]]
    return [
        *by_role({**values, "baseline": comparison.baseline}),
        ("Variants", variants),
        ("Environment", _lines(plan.get("environment", {}))),
    ]


def by_role(values: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return settings by what they decide; what is no field is of the judgement, as the baseline is."""
    roles = {name: FIELDS[name].role if name in FIELDS else JUDGEMENT for name in values}
    return [
        (f"Settings {role}", _lines({name: value for name, value in values.items() if roles[name] == role}))
        for role in dict.fromkeys(one.role for one in FIELDS.values())
    ]


def describe(variant: Mapping[str, Any], layers: Mapping[str, str]) -> str:
    """Say in a line what a variant is, and of how many layers.

    >>> describe({"name": "a", "norm": "dyt", "lr": None}, {"norm": "9 norms"})
    'norm dyt (9 norms)'
    """
    suffixes = {key: f" ({count})" for key, count in layers.items()}
    values = {key: value for key, value in variant.items() if key != "name" and value is not None}
    return " · ".join(f"{key} {value}{suffixes.get(key, '')}" for key, value in values.items())


def swatch(look: Mapping[str, Any]) -> Any:
    """Return a line in a variant's colour and dash."""
    from markupsafe import Markup

    dash = DASH_LENGTHS[look["dash"]]
    return Markup(
        '<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">'
        '<line x1="1" x2="29" y1="6" y2="6" stroke-width="{}" stroke-opacity="{}" style="stroke: {}" '
        'stroke-dasharray="{}"/></svg>'
    ).format(look["width"], figures.PALE if look["width"] == figures.WIDE else 1, look["colour"], dash)


def _lines(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key.replace("_", " "), _write_value(value)) for key, value in values.items()]


def _command_line(words: list[str]) -> str:
    """Write a command as it was typed, or a call."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _write_value(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(value: Any) -> str:
    """Return a path's last part, and any other text as it is."""
    return Path(str(value)).name if str(value).startswith("/") else in_words(str(value))
