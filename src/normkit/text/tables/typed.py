"""Typed columns: what the cells of a column are, when they are read as one."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

NOTHING = {"", "-", "--", "n/a", "na", "nan", "nil", "none", "null", "unknown", "?", "tbd"}
SIGNS = re.compile(r"[$€£¥%\s\u00a0\u202f']")
ENGLISH = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
CONTINENTAL = re.compile(r"[-+]?(\d{1,3}(\.\d{3})+|\d+)?(,\d+)?")
RANGE = re.compile(r"(.*[^\s-])\s*(?:-|\bto\b|\.\.)\s*(\S.*)")
FORMATS = [*["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"]]
FORMATS += ["%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y"]


class Reading(NamedTuple):
    """Columns that one became, each a name's ending and cells, and what was done in words, or nothing."""

    columns: list[tuple[str, list[Any]]]
    note: str = ""


def read(cells: Sequence[str], decimal: str | None = None) -> Reading:
    """Return a column's cells as numbers, dates or ranges of numbers if all of them are; else as they are.

    Cells that say that there is nothing, such as N/A, are None. Where two readings differ it stays text; ``decimal``
    says which sign stands before decimals, if it is known.

    >>> read(["1,200", "n/a", "$ 7.5"]).columns
    [('', [1200.0, None, 7.5])]
    >>> read(["1-3", "4 to 5"]).columns
    [('_from', [1, 4]), ('_to', [3, 5])]
    >>> read(["03/04/2024", "05/06/2024"]).note
    'dates may be read in 2 ways, and stay text'
    """
    there = [one for one in cells if one.lower() not in NOTHING]
    ends = [RANGE.fullmatch(one) for one in there]
    for what, readings in (("numbers", numbers(there, decimal)), ("dates", dates(there))):
        if len(readings) > 1:
            said = f"{what} may be read in {len(readings)} ways, and stay text"
            return Reading(
                [("", _filled(cells, there))], said + ("; say which by decimal" if what == "numbers" else "")
            )
        if readings:
            return Reading([("", _filled(cells, readings[0]))], what)
    if there and all(ends):
        sides = [numbers([one[side] for one in ends if one], decimal) for side in (1, 2)]
        if all(len(side) == 1 for side in sides):
            pairs = zip(("_from", "_to"), sides, strict=True)
            return Reading([(ending, _filled(cells, side[0])) for ending, side in pairs], "ranges, in two columns")
    return Reading([("", _filled(cells, there))])


def numbers(cells: Sequence[str], decimal: str | None = None) -> list[list[int | float]]:
    """Return the ways to read cells as numbers; whole ones as integers. One with a leading zero is a code."""
    plain = [SIGNS.sub("", one) for one in cells]
    if not plain or not all(any(map(str.isdigit, one)) for one in plain) or any(map(_is_code, plain)):
        return []
    found: list[list[float]] = []
    for style, drop, point in ((ENGLISH, ",", "."), (CONTINENTAL, ".", ",")):
        if found and any("," in one for one in plain):
            break  # 1,200 is rarely meant to have three decimals; 1.200 may be
        if decimal in (None, point) and all(style.fullmatch(one) for one in plain):
            found.append([float(one.replace(drop, "").replace(point, ".")) for one in plain])
    whole: list[list[int | float]] = [[*map(int, own)] if all(map(float.is_integer, own)) else [*own] for own in found]
    return [own for at, own in enumerate(whole) if own not in whole[:at]]


def dates(cells: Sequence[str]) -> list[list[datetime.date]]:
    """Return the ways to read cells as dates that differ."""
    found: list[list[datetime.date]] = []
    for form in FORMATS if cells else ():
        own = list(map(_date(form), cells))
        if all(own) and own not in found:
            found.append([one for one in own if one])
    return found


def _is_code(text: str) -> bool:
    return bool(re.match(r"0\d", text))


def _date(form: str) -> Callable[[str], datetime.date | None]:
    def read_one(text: str) -> datetime.date | None:
        try:
            return datetime.datetime.strptime(text, form).date()
        except ValueError:
            return None

    return read_one


def _filled(cells: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """Put values where cells have something, None elsewhere."""
    rest = iter(values)
    return [None if one.lower() in NOTHING else next(rest) for one in cells]
