"""All that a comparison comes to: its ranking, ladder, crossed choices, shifted streams and few bits."""

from __future__ import annotations

from collections.abc import Sequence

from normkit.lab.report import advice, factor, ladder, lasting, quant, shift
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import Row
from normkit.lab.report.tables import Section


def headline(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Say in a line what to do, and whether it lasts."""
    beside = (ladder.headline(comparison), factor.headline(comparison), lasting.headline(comparison, rows))
    return ". ".join(filter(None, (advice.headline(rows), *beside)))


def answer(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """Say in sentences what was found."""
    beside = [*ladder.sentences(comparison), *factor.sentences(comparison, rows)]
    return [*advice.answer(rows), *beside, *shift.sentences(comparison), *quant.sentences(comparison)]


def sections(comparison: Comparison, rows: Sequence[Row]) -> list[Section]:
    """Return the tables beside the ranked one."""
    later = (shift.section(comparison), quant.section(comparison))
    return [one for one in (ladder.section(comparison), factor.section(comparison, rows), *later) if one is not None]


def reading(comparison: Comparison) -> list[str]:
    """Say how those are to be read."""
    return [
        *ladder.reading(comparison),
        *factor.reading(comparison),
        *shift.reading(comparison),
        *quant.reading(comparison),
    ]
