"""Table normalization: names of columns that SQL takes, cells without ornament, columns in another order."""

# ruff: noqa: RUF001 (the signs are meant)

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

Table = Sequence[Sequence[str]]
WORDS = {">": "GT", "<": "LT", "\\n": "_", "\n": "_", "\\": "_"}  # in this order
UNDERSCORE, GONE = " /\\-:#%", ".()[]{}*$,?!'@&=+"
NAME = str.maketrans(dict.fromkeys(UNDERSCORE, "_") | dict.fromkeys(GONE, ""))
CELL = str.maketrans(dict.fromkeys("‘’´`", "'") | dict.fromkeys("“”", '"') | dict.fromkeys("‐‑‒–—−", "-"))
MARKS = re.compile(r"[•♦†‡*#+]")
CLEAR_MARKS = re.compile(r"[•♦†‡*]|(?<![^\W\d_])(?<![#+])[#+]")  # not behind a letter: C++ is no C, and A+ no A
QUOTED = re.compile(r'^"([^"]*)"$')


@method(
    "table-normalization",
    paper="NormTab: Improving Symbolic Reasoning in LLMs Through Tabular Data Normalization (Nahid, Rafiei, "
    "2024), arXiv 2406.17961",
    shape="",
)
class TableNormalization(Text):
    """Bring the header and the cells of a table into a form that SQL can ask, and take it apart for a language model.

    For asking tables of the web by SQL, through a language model: headers and cells are written in too many ways for a
    query. Tables whose columns have types already need none of it.

    It is the part of NormTab that needs no model. Its targeted form asks a model which columns to mend, sends it those
    alone (``split``, ``linearize``), and puts them back last (``put_last``): columns change places. Read what a model
    returns as JSON or literals.

    A table is a list of rows of strings, the first row the header. ``column_names(names)`` gives names without signs, a
    number behind one that was there before; ``cell(text)`` gives NFKD without combining marks, notes, brackets at the
    end and quotes, in lower case; ``transpose(table)``. ``answer_found(prediction, answer)`` is how the authors count
    an answer as right: an *empty* prediction is right for all, and "1" for "2011"; report exact matches beside it.

    NormTab (2024), arXiv 2406.17961.
    """

    form = "NFKD"
    calls = {
        "column_names": (["Year", "Winner (nat.)", "Year"],),
        "cell": ("Café [note] (y)",),
        "transpose": ([["Year", "Time"], ["2008", "5h"]],),
        "split": ([["Year", "Time"], ["2008", "5h"]], ["Time"]),
        "put_last": ([["Year", "Time"], ["2008", "5h"]], ["Year"]),
        "linearize": ([["Year", "Time"], ["2008", "5h"]],),
        "answer_found": ("Paris, France", "paris"),
    }

    def column_names(self, names: Sequence[str]) -> list[str]:
        """Return names that SQL takes."""
        seen: Counter[str] = Counter()
        columns = []
        for name in map(_column_name, names):
            columns.append(f"{name}{seen[name]}" if seen[name] else name)
            seen[name] += 1
        return columns

    def cell(self, text: str) -> str:
        """Return what a cell says, without how it is written."""
        return bare("".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn"))

    def transpose(self, table: Table) -> list[list[str]]:
        """Return the table with rows for columns; the old header is the first column."""
        self._check(table)
        header, *rows = map(list, zip(*table, strict=True))
        return [self.column_names(header), *rows]

    def split(self, table: Table, columns: Sequence[str]) -> list[list[list[str]]]:
        """Return the columns named, in the order asked, and the others."""
        last = self._places(table, columns)
        others = [place for place in range(len(table[0])) if place not in last]
        return [[[row[place] for place in places] for row in table] for places in (last, others)]

    def put_last(self, table: Table, columns: Sequence[str]) -> list[list[str]]:
        """Return the table with the columns named behind the others."""
        last, others = self.split(table, columns)
        return [other + own for other, own in zip(others, last, strict=True)]

    def linearize(self, table: Table) -> str:
        """Return the table as text, a line a row."""
        return "\n".join(" | ".join(row) for row in table)

    def answer_found(self, prediction: str, answer: str) -> bool:
        """Return whether the authors count a prediction as right."""
        guess, right = prediction.lower(), answer.lower()
        return guess.strip() == right or guess.strip() in right or right.strip() in guess

    def _check(self, table: Table) -> None:
        if len({len(row) for row in table}) != 1 or not table[0]:
            raise ValueError("TableNormalization: table must have a header and columns, and rows all of one length")

    def _places(self, table: Table, columns: Sequence[str]) -> list[int]:
        self._check(table)
        return [list(table[0]).index(check.choice(self, "name in columns", one, list(table[0]))) for one in columns]


def bare(text: str, marks: re.Pattern[str] = MARKS) -> str:
    """Return a text in lower case, without notes, brackets at the end and quotes."""
    text, before = text.translate(CELL), None
    while text != before:
        before, text = text, _without_notes(text.strip(), marks).strip()
        text = QUOTED.sub(r"\1", _without_brackets(text).strip())
    return re.sub(r"\s+", " ", text.removesuffix(".")).lower().strip()


def _without_notes(text: str, marks: re.Pattern[str]) -> str:
    """Leave out what is in square brackets, and marks, at the end; what is first stays unless it is [digits]."""
    end = len(text)
    while end:
        if marks.match(text, end - 1):
            end -= 1
        elif text.endswith("]", 0, end):
            start = _opening(text, "[", "]", end)
            start = 0 if text[0] == "[" and text[1 : end - 1].isdecimal() else start
            if start < 0:
                break
            end = start
        else:
            break
    return text[:end]


def _without_brackets(text: str) -> str:
    """Leave out what is in round brackets behind a space, at the end; what is first stays."""
    end = len(text)
    while text.endswith(")", 0, end) and (start := _opening(text, " (", ")", end)) > 0:
        end = start
    return text[:end]


def _opening(text: str, opening: str, closing: str, end: int) -> int:
    """Return where the brackets that close before ``end`` open, but not at the very start, or -1."""
    return text.find(opening, max(1, text.rfind(closing, 0, end - 1) + 1), end - 1)


def _column_name(name: str) -> str:
    name = name.strip()
    name = f"_{name}" if name.isnumeric() else name
    for sign, word in WORDS.items():
        name = name.replace(sign, word)
    return name.translate(NAME).strip()
