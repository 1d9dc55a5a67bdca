"""Data frames of pandas and polars alike, through narwhals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number, Rational, Real
from typing import Any

from normkit.optional import library


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame; narwhals is asked only where one can have been made."""
    return any(name in sys.modules for name in ("pandas", "polars", "pyarrow")) and _native(value) is not None


def _native(value: Any) -> Any:
    narwhals = library("narwhals")
    try:
        frame = narwhals.from_native(value, pass_through=True, eager_only=True)
    except narwhals.exceptions.DuplicateError as error:
        raise ValueError(f"columns must have names that differ: {' '.join(str(error).split())}") from None
    return frame if isinstance(frame, narwhals.DataFrame) else None


def columns(frame: Any) -> dict[str, list[Any]]:
    """Return the cells of a data frame by column.

    >>> import pandas
    >>> columns(pandas.DataFrame({"city": ["Bern", "Oslo"]}))
    {'city': ['Bern', 'Oslo']}
    """
    table = _require(frame)
    labels: dict[str, Any] = {}
    for label in table.columns:  # those of pandas may be numbers
        other = labels.setdefault(str(label), label)
        if other is not label:
            raise ValueError(f"columns must have names that differ: {other!r} and {label!r} are one as text")
    return {name: column.to_list() for name, column in zip(labels, table.iter_columns(), strict=True)}


def with_columns(frame: Any, added: Mapping[str, Sequence[Any]]) -> Any:
    """Return a frame of the same library with further columns, or with others in their place."""
    table, narwhals = _require(frame), library("narwhals")
    space = table.implementation
    series = [narwhals.new_series(name, list(cells), backend=space) for name, cells in added.items()]
    if space.is_pandas():  # whose rows are joined by their labels
        index = frame.index
        series = [narwhals.from_native(one.to_native().set_axis(index), series_only=True) for one in series]
    return table.with_columns(*series).to_native()


def of_columns(cells: Mapping[str, Sequence[Any]], like: Any, same: Mapping[str, int], rows: Sequence[bool]) -> Any:
    """Return a new frame of the library that another frame is of.

    Columns named in ``same`` are those of the other frame at a place, in the rows that are True, and keep their types;
    NaN is missing.
    """
    narwhals, table = library("narwhals"), _require(like)
    space = table.implementation
    columns: dict[str, Any] = {name: list(own) for name, own in cells.items()}
    if same:  # then there are rows, without which narwhals does not filter
        table = table.filter(list(rows))
        if space.is_pandas():  # whose rows are joined by their labels
            table = narwhals.from_native(table.to_native().reset_index(drop=True), eager_only=True)
    before = list(table.iter_columns())
    for name, place in same.items():
        column = before[place]
        if column.dtype != narwhals.Object:
            columns[name] = (column.fill_nan(None) if column.dtype.is_float() else column).to_native()
    return narwhals.from_dict(columns, backend=space).to_native()


def _require(frame: Any) -> Any:
    table = _native(frame)
    if table is None:
        raise TypeError(f"a data frame of pandas or polars is wanted, not {type(frame).__name__}")
    return table


def is_missing(value: Any) -> bool:
    """Whether a cell has nothing in it: None, NaN, pandas' NA or NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (value != value) is True


def as_text(owner: str, cell: Any) -> str:
    """Return a cell as text; a missing one is empty; bytes, whose encoding nobody knows, and lists are refused.

    Whole numbers have no decimals: one empty cell makes floats of a column's integers.
    """
    if isinstance(cell, bytes):
        raise TypeError(f"{owner}: cells must not be bytes, as {cell!r} is; decode them")
    if isinstance(cell, Iterable) and not isinstance(cell, str):
        raise TypeError(f"{owner}: cells must be single values, not {type(cell).__name__}, as {cell!r} is")
    if isinstance(cell, str) or is_missing(cell):
        return cell if isinstance(cell, str) else ""
    is_float = isinstance(cell, Real) and not isinstance(cell, Rational)
    return str(int(cell) if is_float and cell % 1 == 0 else cell)


def is_number(value: Any) -> bool:
    """Whether a cell holds a number."""
    return isinstance(value, Number)
