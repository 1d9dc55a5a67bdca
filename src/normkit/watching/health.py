"""The health of a model in a few numbers a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from normkit.columns import number_of
from normkit.watching.finding import number
from normkit.watching.history import History
from normkit.watching.rules.vanishing_gradient import gradients_by_block

COLUMNS = ("rms", "largest", "kurtosis", "dead", "cosine", "alike", "gradient")


def head(history: History) -> str:
    """Name the model in a line."""
    facts = history.facts
    return f"{facts['model']}, {facts['parameters']:,} parameters, {number_of(len(facts['blocks']), 'block')}"


def table(history: History) -> list[tuple[str, ...]]:
    """Return a row a block, below the titles of the columns; a column without numbers is left out."""
    late: dict[str, Mapping[str, float]] = {
        what: {block: value for block, value in history.late(what).items() if value == value} for what in COLUMNS
    }
    late["gradient"] = gradients_by_block(history)
    late["entropy"] = _within(history.late("entropy"), history.facts["blocks"])
    rows = [block for block in history.facts["blocks"] if any(block in column for column in late.values())]
    kept = [what for what, column in late.items() if any(row in column for row in rows)]
    cells = [tuple(number(late[what][row]) if row in late[what] else "" for what in kept) for row in rows]
    return [("block", *kept), *((row or "the model", *own) for row, own in zip(rows, cells, strict=True))]


def _within(by_site: Mapping[str, float], blocks: Iterable[str]) -> dict[str, float]:
    """Give each block the least number of what is in it."""
    inside = {block: [v for name, v in by_site.items() if f"{name}.".startswith(f"{block}.")] for block in blocks}
    return {block: min(values) for block, values in inside.items() if values}
