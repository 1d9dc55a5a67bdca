"""All that a comparison comes to: what its ranking, its ladder and its crossed choices say."""

from __future__ import annotations

from collections.abc import Sequence

from normkit.lab.report import advice, factor, ladder
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import Row
from normkit.lab.report.tables import Section


def headline(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Say in a line what to do, and whether it lasts."""
    return ". ".join(filter(None, (advice.headline(rows), ladder.headline(comparison), factor.headline(comparison))))


def answer(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """Say in sentences what was found."""
    return [*advice.answer(rows), *ladder.sentences(comparison), *factor.sentences(comparison, rows)]


def sections(comparison: Comparison, rows: Sequence[Row]) -> list[Section]:
    """Return the tables beside the ranked one."""
    return [one for one in (ladder.section(comparison), factor.section(comparison, rows)) if one is not None]


def reading(comparison: Comparison) -> list[str]:
    """Say how those are to be read."""
    return [*ladder.reading(comparison), *factor.reading(comparison)]
