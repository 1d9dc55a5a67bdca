"""Typed columns: what the cells of a column are, when they are read as one."""

from __future__ import annotations

import contextlib
import datetime
import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from normkit.text.vocabulary import NOTHING

KINDS: tuple[tuple[type, ...], ...] = (
    *((bool, np.bool_), (datetime.datetime,), (datetime.date,), (datetime.time,), (datetime.timedelta,)),
    (Real, Decimal),
)  # the first that fits: True is a number in Python, and a datetime a date
DATE, NUMBER = 2, 5
LARGEST = 2**63  # of whole numbers in SQL
SIGNS = re.compile(r"[$€£¥%]")
OUTER = re.compile(r"^([-+\s']*)[$€£¥%]|[$€£¥%]([\s']*)$")
EDGES = re.compile(r"^([-+]?)[\s']+|(?<![\s'])[\s']+$")
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}([\s']\d{3})+([.,]\d+)?")  # behind a plus it may be a telephone's
TELEPHONE, LOCAL = re.compile(r"[\s']*\+[\s']*\d{8,}[\s']*"), re.compile(r"\d{3,}\s*-\s*\d{4,}")
ENGLISH = re.compile(r"[-+]?(?!e)([1-9]\d{0,2}(,\d{3})+|\d+)?(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
CONTINENTAL = re.compile(r"[-+]?([1-9]\d{0,2}(\.\d{3})+|\d+)?(,\d+)?")
RANGE = re.compile(r"(.*[^\s-])\s*(?:-|\bto\b|\.\.)\s*(\S.*)")
FORMATS = [*["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"]]
FORMATS += ["%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y"]


class Reading(NamedTuple):
    """Columns that one became, each a name's ending and cells, and what was done in words, or nothing.

    ``written`` has the cells of each column as a file has them: numbers with the digits that they came with.
    """

    columns: list[tuple[str, list[Any]]]
    note: str = ""
    written: tuple[list[str], ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether there are texts and missing cells only."""
        return all(one is None or isinstance(one, str) for _, column in self.columns for one in column)


def kind_of(cell: Any) -> int | None:
    """Return the place in ``KINDS`` of what a cell is, or None where SQL has no such values."""
    return next((place for place, kinds in enumerate(KINDS) if isinstance(cell, kinds)), None)


def read(cells: Sequence[Any], decimal: str | None = None, telephones: bool = False) -> Reading:
    """Return a column's texts as numbers, dates or ranges of numbers if all of them are; else as they are.

    Cells that say that there is nothing, such as N/A, are None. Where two readings differ it stays text; ``decimal``
    says which sign stands before decimals, if it is known, or ``".,"`` that both are usual: 1,200 is then unclear too.
    A currency or % at the edge goes where all cells that have one have the same, % only where all have it.
    Numbers, dates and truth values that are no texts keep their values, unless they are mixed with something else.
    Where the column is one of ``telephones``, 555-1234 is no range.

    >>> read(["1,200", "n/a", "$ 7.5"]).columns
    [('', [1200.0, None, 7.5])]
    >>> read(["1-3", "4 to 5"]).columns
    [('_from', [1, 4]), ('_to', [3, 5])]
    >>> read(["03/04/2024", "05/06/2024"]).note
    'dates may be read in 2 ways, and stay text'
    >>> read([1.234, "5,678"], decimal=",").columns
    [('', [1.234, 5.678])]
    """
    entries, kinds = _entries(cells), {kind_of(one) for one in cells if not isinstance(one, str)}
    if not entries and len(kinds) == 1:
        return _reading(cells, "", (), ())
    note = ""
    numbers, days = numerals(entries, decimal), dates(entries)
    signs = sorted({sign for one in entries for sign in SIGNS.findall(one)})
    unsigned = bool(kinds) or not all(map(SIGNS.search, entries))
    mixed = " and ".join(signs) if len(signs) > 1 else "and without %" if signs == ["%"] and unsigned else ""
    unit = f" in {signs[0]}" if signs else ""
    if mixed and numbers:
        numbers, note = [], f"numbers with {mixed} stay text"
    for what, kind, readings in (("numbers", NUMBER, [_values(own) for own in numbers]), ("dates", DATE, days)):
        if readings and kinds <= {kind}:
            if len(readings) == 1:
                texts = numbers[0] if what == "numbers" else [day.isoformat() for day in days[0]]
                return _reading(cells, "", readings[0], texts, what + unit)
            note = f"{what} may be read in {len(readings)} ways, and stay text"
            note += "; say which by decimal" if what == "numbers" else ""
            break
    ends = [RANGE.fullmatch(one) for one in entries]
    if entries and not kinds and not note and not mixed and all(ends):
        sides = [numerals([one[side] for one in ends if one], decimal) for side in (1, 2)]
        if all(len(side) == 1 for side in sides):
            pairs = zip(entries, *(_values(side[0]) for side in sides), strict=True)
            why = next((f"{one} is not from low to high" for one, first, last in pairs if first > last), "")
            if telephones and all(map(LOCAL.fullmatch, entries)):
                why = "they are telephone numbers"
            if not why:
                low, high = (
                    _reading(cells, ending, _values(side[0]), side[0])
                    for ending, side in zip(("_from", "_to"), sides, strict=True)
                )
                return Reading(low.columns + high.columns, f"ranges{unit}, in two columns", low.written + high.written)
            note = f"pairs of numbers stay text: {why}"
    for what, close in (
        ("digits behind a plus, as of telephones,", lambda one: one.lstrip("+ '")),
        ("digits parted by spaces or apostrophes", lambda one: _closed(one).lstrip("+")),
        ("numbers with raised digits or fractions", _level),
    ):
        if not note and not numbers and numerals(list(map(close, entries)), decimal):
            note = f"{what} stay text"
    cells = [one if isinstance(one, str) else str(one).lower() for one in cells]
    return _reading(cells, "", _entries(cells), _entries(cells), note)


def _entries(cells: Sequence[Any]) -> list[str]:
    return [one for one in cells if isinstance(one, str) and one.lower() not in NOTHING]


def _reading(cells: Sequence[Any], ending: str, values: Sequence[Any], texts: Sequence[str], note: str = "") -> Reading:
    written = ["" if one is None else str(one) for one in _fill(cells, texts)]
    column = _fill(cells, values)
    if any(isinstance(one, float) for one in column):  # a column has one type
        column = [None if one is None else float(one) for one in column]
    return Reading([(ending, column)], note, (written,))


def numerals(cells: Sequence[str], decimal: str | None = None) -> list[list[str]]:
    """Return the ways to read cells as numbers that differ, each as digits with a decimal point, none of them lost.

    One with a leading zero is a code, and so is a whole number that SQL has no room for; eight digits or more behind a
    plus, and no sign of decimals, are a telephone's.

    >>> numerals(["1,200", "$ 7.50"])
    [['1200', '7.50']]
    """
    if not cells or not all(any(map(str.isdigit, one)) for one in cells):
        return []
    plain = list(map(_plain, cells))
    if any(map(_is_code, plain)) or any(map(TELEPHONE.fullmatch, cells)):
        return []
    readings: list[list[str]] = []
    for style, drop, point in ((ENGLISH, ",", "."), (CONTINENTAL, ".", ",")):
        if readings and decimal is None and any("," in one for one in plain):
            break  # 1,200 is rarely meant to have three decimals; 1.200 may be
        if point in (decimal or ".,") and all(style.fullmatch(one) for one in plain):
            readings.append([one.replace(drop, "").replace(point, ".") for one in plain])
    values = [_values(own) for own in readings]
    return [own for at, own in enumerate(readings) if values[at] not in values[:at] and all(map(_fits, values[at]))]


def _plain(text: str) -> str:
    """Return a text without one sign at its edge, with the digits of ASCII, and without what parts thousands."""
    text = OUTER.sub(r"\1\2", text) if len(SIGNS.findall(text)) == 1 else text
    text = EDGES.sub(r"\1", text)
    if not text.isascii():
        text = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)
    return _closed(text) if THOUSANDS.fullmatch(text) else text


def _closed(text: str) -> str:
    return re.sub(r"[\s']", "", text)


def _level(text: str) -> str:
    """Leave out raised, lowered and circled digits, and fractions."""
    return "".join(sign for sign in text if unicodedata.category(sign) != "No")


def _fits(value: int | float) -> bool:
    return abs(value) < (LARGEST if isinstance(value, int) else math.inf)


def _values(texts: Sequence[str]) -> list[int | float]:
    """Read numbers, as integers where all are whole."""
    numbers = list(map(float, texts))
    if not all(map(float.is_integer, numbers)):
        return [*numbers]
    return [int(text) if text.lstrip("+-").isdigit() else int(one) for text, one in zip(texts, numbers, strict=True)]


def dates(cells: Sequence[str]) -> list[list[datetime.date]]:
    """Return the ways to read cells as dates that differ."""
    readings: list[list[datetime.date]] = []
    for form in FORMATS if cells else ():
        with contextlib.suppress(ValueError):  # raised at the first cell that is no date
            own = [datetime.datetime.strptime(one, form).date() for one in cells]
            if own not in readings:
                readings.append(own)
    return readings


def _is_code(text: str) -> bool:
    return bool(re.match(r"[-+]?0\d", text))


def _fill(cells: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Put values where cells have a text, None where it says nothing; what is no text stays."""
    rest = iter(values)
    return [one if not isinstance(one, str) else None if one.lower() in NOTHING else next(rest) for one in cells]
