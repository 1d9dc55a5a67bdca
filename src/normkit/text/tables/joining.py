"""Joinable columns: which columns of other tables have the values of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from normkit import check
from normkit.text import frames
from normkit.text.rewrite.fold import fold
from normkit.text.tables.column_text import ColumnText

if TYPE_CHECKING:
    from normkit.text.normalizer import Normalizer


class Joinable(NamedTuple):
    """A column of a table, the share of the query's values that it has, and how many these are."""

    table: str
    column: str
    share: float
    values: int


def joinable(
    query: Sequence[Any], tables: Mapping[str, Any], norm: Normalizer | None = None, least: float = 0.1
) -> list[Joinable]:
    """Return the columns that a column can be joined with, those that have most of its values first.

    Values are compared folded; with a normalizer by what they mean, so that "Deutschland" joins "Germany".

        >>> tables = {"people": {"Place": ["BERN", "Oslo"], "n": ["1", "2"]}}
        >>> joinable(["Bern", "Basel"], tables)
        [Joinable(table='people', column='Place', share=0.5, values=1)]

    Args:
        query: the values, of a list or of a series.
        tables: name -> a data frame, or {column: values}.
        norm: what brings values to their entries; those that it takes for none are compared folded.
        least: the smallest share that is reported.
    """
    check.number("joinable", "least", least, 0.0, 1.0)
    share = ColumnText().joinability
    _require_tables(query, tables)
    asked = _forms(query, norm)
    if not asked:
        raise ValueError("joinable: query must have at least one value")
    matches = []
    for table, frame in tables.items():
        if not isinstance(frame, Mapping) and not frames.is_frame(frame):
            raise TypeError(f"joinable: tables[{table!r}] must be a data frame or columns, not {frame!r}")
        for column, cells in (frame if isinstance(frame, Mapping) else frames.columns(frame)).items():
            forms = _forms(cells, norm)
            matches.append(Joinable(table, column, share(asked, forms), len({*asked} & {*forms})))
    return sorted((one for one in matches if one.values and one.share >= least), key=lambda one: -one.share)


def _require_tables(query: Any, tables: Any) -> None:
    if isinstance(query, str | bytes):
        raise TypeError(f"joinable: query must be the values of a column, not {query!r}")
    if not isinstance(tables, Mapping) or isinstance(query, Mapping) or frames.is_frame(query):
        expected = "a column's values and a mapping, a name to a table, are wanted"
        raise TypeError(f"joinable: {expected}, not {type(query).__name__} and {type(tables).__name__}")


def _forms(cells: Any, norm: Normalizer | None) -> list[str]:
    """Distinct values as they are compared."""
    texts = list(dict.fromkeys(frames.as_text("joinable", cell) for cell in cells))
    ids = [None] * len(texts) if norm is None else [match.id for match in norm.normalize(texts)]
    forms = (fold(text) if id is None else f"\x00{id}" for text, id in zip(texts, ids, strict=True))
    return [form for form in dict.fromkeys(forms) if form]
