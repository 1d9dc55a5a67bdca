"""A messy table made one that SQL can ask: names of columns, cells, and their types."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normkit import check
from normkit.columns import number_of, quoted
from normkit.text import frames
from normkit.text.rewrite.fold import INVISIBLE
from normkit.text.tables import typed
from normkit.text.tables.table_normalization import CLEAR_MARKS, TableNormalization, bare
from normkit.text.vocabulary import says_nothing

Model = Callable[[str], str]
ASKING = """Here are the header and the first rows of a table. Some columns hold cells that SQL cannot use as they are:
several values in one cell, numbers with words, dates in words. Answer with a JSON list of the names of those columns
and nothing else; [] for none.

"""
MENDING = """Here are columns of a table. Write each cell so that SQL can use it: one value a cell, numbers as digits,
dates as YYYY-MM-DD, null for what is missing. Answer with a JSON list of rows, each a list of as many cells, without
the header and with as many rows, and nothing else.

"""
SHOWN = 3
BARED = ("LATIN", "GREEK", "CYRILLIC", "SPACE")  # an accent alone is one on a space
FENCE = re.compile(r"\A\s*```\w*\n(.*?)```\s*\Z", re.DOTALL)
BLANK, NO_QUOTES = re.compile(r"[^\S\n]"), dict.fromkeys(map(ord, '"“”„«»\u2018\u2019`'))
NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # hotel has no word tel, workTel has
TELEPHONE = re.compile(r"(tel|phone|telephone|fax)(no|nr|num|number)?|telefon\w*", re.IGNORECASE)
TOTALS = ("total", "totals", "sum", "all")


@dataclass(frozen=True)
class CleanTable:
    """A table in the form in which it came, and what was done to it, a line each.

    ``written`` has the cells of each column as a file has them, numbers with the digits that they came with.
    """

    table: Any
    notes: tuple[str, ...]
    written: Mapping[str, list[str]]


def normalize_table(table: Any, model: Model | None = None, decimal: str | None = None) -> CleanTable:
    """Bring a table into a form that SQL can ask.

    Columns get names without signs and spaces. Cells lose notes, brackets and quotes as :class:`TableNormalization`
    says, and accents where they are no letters, and are lower case; a note counts them. One that would be empty then
    stays. What says "nothing" becomes None, and columns of numbers, dates or ranges get that type. A last row that sums
    up the others goes, and so do empty rows. What may be read in two ways stays text; a note tells. Numbers, dates and
    truth values that are no texts keep their values, and columns of a frame their type.

        >>> done = normalize_table({"City (2024)": ["Bern[1]", "Basel*"], "Pop. %": ["1,340", "n/a"]})
        >>> done.table
        {'City_2024': ['bern', 'basel'], 'Pop__': [1340, None]}

    Args:
        table: a data frame of pandas or polars, {name: cells}, or rows, the first of which is the header.
        model: a language model, from text to text, which is asked which columns to mend, and then to mend these. What
            it says is read as JSON or literals, and refused where it does not fit the table. Columns keep their places,
            where the authors of NormTab put mended ones last.
        decimal: the sign before decimals, ``"."`` or ``","``, where 1.200 is to be read as it is meant; ``".,"`` where
            both are usual, so that 1,200 stays text too.
    """
    check.choice("normalize_table", "decimal", decimal, (None, ".", ",", ".,"))
    if model is not None and not callable(model):
        raise TypeError(f"normalize_table: model must be a function from text to text, not {model!r}")
    names, columns = _take(table)
    notes: list[str] = []
    mended = columns if model is None else _mend(names, columns, model, notes)
    method = TableNormalization()
    visible = [BLANK.sub(" ", name.translate(INVISIBLE)).translate(NO_QUOTES) for name in names]
    named = [name if any(method.column_names([name])) else f"column {at}" for at, name in enumerate(visible, 1)]
    renamed = apart(method.column_names(named))
    notes += [f"{old!r} is now {new}" for old, new in zip(names, renamed, strict=True) if old != new]
    given = {name: list(map(_value, own)) for name, own in zip(renamed, mended, strict=True)}
    readings = {name: _read(own, decimal, _names_telephones(name)) for name, own in given.items()}
    notes += [f"{name}: {reading.note}" for name, reading in readings.items() if reading.note]
    notes += [f"{name}: {note}" for name, own in given.items() for note in _rewritten(own, readings[name])]
    ended = [f"{name}{ending}" for name, outcome in readings.items() for ending, _ in outcome.columns if ending]
    labels = dict(zip(ended, apart([*renamed, *ended])[len(renamed) :], strict=True))
    notes += [f"{old} is a column already, so ends of ranges are in {new}" for old, new in labels.items() if old != new]
    made = {
        labels[f"{name}{ending}"] if ending else name: own
        for name, outcome in readings.items()
        for ending, own in outcome.columns
    }
    texts = [own for outcome in readings.values() for own in outcome.written]
    kept = [
        any(cell is not None for cell in row) or not all(map(_says_nothing, came))
        for row, came in zip(zip(*made.values(), strict=True), zip(*given.values(), strict=True), strict=True)
    ]
    if not all(kept):
        gone = kept.count(False)
        notes.append(f"{number_of(gone, 'empty row')} {'is' if gone == 1 else 'are'} gone")
    if _ends_in_total(_rows(made, kept)):
        kept[len(kept) - 1 - kept[::-1].index(True)] = False
        notes.append("the last row, which sums up the others, is gone")
    written = _rows(dict(zip(made, texts, strict=True)), kept)
    untouched = [reading.note == "" and not reading.is_text for reading in readings.values()]
    same = {name: at for at, name in enumerate(readings) if untouched[at] and mended[at] is columns[at]}
    return CleanTable(_in_type_of(_rows(made, kept), table, same, kept), tuple(notes), written)


def _names_telephones(name: str) -> bool:
    return any(map(TELEPHONE.fullmatch, NAME_WORD.findall(name)))


def _read(given: Sequence[Any], decimal: str | None, telephones: bool) -> typed.Reading:
    """Read a column. A cell that is a note alone is missing among numbers, and stays as it is among texts."""
    cells = [bare(_without_accents(one), CLEAR_MARKS) if isinstance(one, str) else one for one in given]
    reading = typed.read(cells, decimal, telephones)
    if not reading.is_text or "" not in cells:
        return reading
    whole = [
        " ".join(one.lower().strip('"').split()) if cell == "" else cell for one, cell in zip(given, cells, strict=True)
    ]
    return typed.read(whole, decimal, telephones)


def _without_accents(text: str) -> str:
    """Return a text in NFKC, without the marks of Latin, Greek and Cyrillic; in other scripts a mark is a letter."""
    if text.isascii():
        return text
    signs, base, behind_letter = [], "0", False
    for whole in text:
        for sign in _parts(whole, behind_letter):
            is_mark = unicodedata.category(sign) == "Mn"
            base = base if is_mark else sign
            if not is_mark or not unicodedata.name(base, "").startswith(BARED):
                signs.append(sign)
        if unicodedata.category(whole) not in ("Mn", "No"):
            behind_letter = whole.isalpha()
    return unicodedata.normalize("NFC", "".join(signs))


def _parts(sign: str, behind_letter: bool) -> str:
    """Return a sign in NFKD, or as it is if its parts would be another thing.

    Those are vowels of Thai and Lao, whose parts, a mark first, do not come together again, and raised, lowered and
    circled digits and fractions behind anything but a letter: 10² is not 102.
    """
    if unicodedata.category(sign) == "No" and not behind_letter:
        return sign
    parts = unicodedata.normalize("NFKD", sign)
    return sign if len(parts) > 1 and unicodedata.category(parts[0]) == "Mn" else parts


def _says_nothing(cell: Any) -> bool:
    return isinstance(cell, str) and says_nothing(cell)


def _rewritten(given: Sequence[Any], reading: typed.Reading) -> list[str]:
    """Say how many cells that stay text are not written as they came, and how many are lost; spaces do not count."""
    column = reading.columns[0][1]
    lost = sum(text is None and not _says_nothing(cell) for cell, text in zip(given, column, strict=True))
    cells = [
        (unicodedata.normalize("NFKC", " ".join(str(cell).split())), text)
        for cell, text in zip(given, column, strict=True)
        if isinstance(text, str)
    ]
    lowered = sum(cell != cell.lower() for cell, _ in cells)
    bare = sum(cell.lower() != unicodedata.normalize("NFKC", text) for cell, text in cells)
    whats = {"in lower case": lowered, "without accents, notes, brackets or other signs": bare}
    whats["with nothing but notes or signs, and so missing"] = lost
    merged = _merged(cells)
    return [f"{number_of(count, 'cell')} {what}" for what, count in whats.items() if count] + merged


def _merged(cells: Sequence[tuple[str, str]]) -> list[str]:
    """Name the first cells that differ in more than case and become one."""
    first: dict[str, str] = {}
    for cell, text in cells:
        before = first.setdefault(text, cell)
        if before.lower() != cell.lower():
            return [f"{quoted(before)} and {quoted(cell)} are both {quoted(text)} now"]
    return []


def _rows(columns: Mapping[str, Sequence[Any]], kept: Sequence[bool]) -> dict[str, list[Any]]:
    return {name: list(itertools.compress(own, kept)) for name, own in columns.items()}


def apart(names: Sequence[str]) -> list[str]:
    """Return names that SQL tells apart, for which capitals are none: a number stands behind one that is taken.

    >>> apart(["Year", "year", "Year1"])
    ['Year', 'year2', 'Year1']
    """
    taken, labels = {name.lower() for name in names}, []
    seen: set[str] = set()
    for name in names:
        new = name
        if name.lower() in seen:
            new = next(one for one in (f"{name}{number}" for number in itertools.count(2)) if one.lower() not in taken)
        seen.add(new.lower())
        taken.add(new.lower())
        labels.append(new)
    return labels


def read_answer(answer: str) -> Any:
    """Return what a language model said, read as JSON or as a literal of Python; nothing is run.

    >>> read_answer('```json\\n["year"]\\n```'), read_answer("['year', None]")
    (['year'], ['year', None])
    """
    text = FENCE.sub(r"\1", answer)
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(text.strip())
    raise ValueError(f"model: neither JSON nor a literal: {answer[:80]!r}")


def _take(table: Any) -> tuple[list[str], list[list[Any]]]:
    if frames.is_frame(table):
        table = frames.columns(table)
    if isinstance(table, Mapping):
        names, columns = list(map(str, table)), [list(own) for own in table.values()]
    elif isinstance(table, Sequence) and not isinstance(table, str | bytes) and table:
        names, columns = list(map(_string, table[0])), [list(own) for own in zip(*table[1:], strict=False)]
        columns = columns or [[] for _ in names]
        if any(len(row) != len(names) for row in table):
            raise ValueError("normalize_table: rows must all be as long as the header")
    else:
        raise TypeError(f"normalize_table: table must be a data frame, columns or rows, not {type(table).__name__}")
    if len({len(own) for own in columns}) > 1:
        raise ValueError("normalize_table: columns must be of one length")
    return names, columns


def _in_type_of(columns: Mapping[str, list[Any]], table: Any, same: Mapping[str, int], kept: Sequence[bool]) -> Any:
    if frames.is_frame(table):
        try:
            return frames.of_columns(columns, table, same, kept)
        except UnicodeEncodeError as error:
            name = next(name for name, own in columns.items() if error.object in own)
            row = list(itertools.compress(itertools.count(), kept))[columns[name].index(error.object)]
            raise ValueError(
                f"normalize_table: column {name!r}, row {row}: {error.object!r} has a lone surrogate, half a "
                "character, which a data frame cannot hold"
            ) from None
    if isinstance(table, Mapping):
        return dict(columns)
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def _string(cell: Any) -> str:
    return frames.as_text("normalize_table", cell)


def _value(cell: Any) -> Any:
    """Return a cell that SQL has a type for as it is, and any other as text."""
    is_text = frames.is_missing(cell) or typed.kind_of(cell) is None
    return _string(cell).translate(INVISIBLE) if is_text else cell


def _answer(model: Model, asked: str) -> Any:
    reply = model(asked)
    if not isinstance(reply, str):
        raise TypeError(f"model: a function from text to text is wanted; it returned {reply!r}")
    return read_answer(reply)


def _mend(names: list[str], columns: list[list[Any]], model: Model, notes: list[str]) -> list[list[Any]]:
    """Ask which columns to mend, and then for these."""
    rows = [[_string(cell) for cell in row] for row in zip(*columns, strict=True)]
    method = TableNormalization()
    broken = _answer(model, ASKING + method.linearize([names, *rows[:SHOWN]]))
    if not isinstance(broken, list) or any(one not in names for one in broken):
        raise ValueError(f"model: columns of {names} were asked for, not {broken!r}")
    if not broken:
        return columns
    places = [names.index(one) for one in broken]
    asked = [broken, *([row[at] for at in places] for row in rows)]
    mended = _answer(model, MENDING + method.linearize(asked))
    right = isinstance(mended, list) and len(mended) == len(rows)
    if not right or any(not isinstance(row, list) or len(row) != len(broken) for row in mended):
        raise ValueError(f"model: {len(rows)} rows of {len(broken)} cells were asked for, not {str(mended)[:80]}")
    notes.append(f"the model mended {', '.join(broken)}")
    return [[row[places.index(at)] for row in mended] if at in places else own for at, own in enumerate(columns)]


def _ends_in_total(columns: Mapping[str, list[Any]]) -> bool:
    """Whether a last row is called a total, and its numbers are the sums of those above."""
    first = next(iter(columns.values()), [])
    if len(first) < 3 or not isinstance(first[-1], str) or first[-1].rstrip(":") not in TOTALS:
        return False
    sums = [
        (sum(cell for cell in own[:-1] if cell is not None), own[-1])
        for own in columns.values()
        if typed.kind_of(own[-1]) == typed.NUMBER
    ]
    return bool(sums) and all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in sums)
