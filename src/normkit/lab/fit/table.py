"""What a density is fitted to: a table or an array, read and checked."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from normkit import check
from normkit.lab.files import native
from normkit.optional import require

LEAST = 20  # rows, of which a tenth is held out twice
GONE = ("", "na", "nan", "null", "none")
SEPARATORS = (";", "\t", ",")  # that are recognized, those first that stand in no number
LOOKED_AT = 20  # rows, to recognize one
MOST = 50  # categories of a column of text
SHOWN = 5  # categories or columns that are named
COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")  # before decimals


class Observations(NamedTuple):
    """Samples (N, ...), the names of columns, and whether they are bytes, as of images.

    categories: of columns that hold some, the words that stand for 0, 1, 2 and so on.
    """

    values: np.ndarray
    names: list[str]
    bytes: bool
    categories: Mapping[str, Sequence[str]] = {}


class Choice(NamedTuple):
    """Which columns of a table are read, all if none is named, which are not, and what separates them in a CSV.

    categories: columns that are read as such though they hold numbers; known: those of a table that was read before.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    sep: str | None = None
    categories: Sequence[str] = ()
    known: Mapping[str, Sequence[str]] | None = None

    def places(self, path: Path, names: Sequence[str]) -> list[int]:
        """Return where the columns that are read stand, in the order of the table."""
        missing = [name for name in self.columns if name not in names]
        if self.known is not None and missing:
            lacked = ", ".join(name or repr(name) for name in missing)
            raise ValueError(f"{path} lacks columns {lacked} of the flow; it has {', '.join(names)}")
        named = (("--columns", self.columns), ("--drop", self.drop), ("--categories", self.categories))
        for option, asked in named:
            for name in asked:
                check.choice("fit", option, name, names)
        places = [at for at, name in enumerate(names) if name in (self.columns or names) and name not in self.drop]
        if not places:
            raise ValueError("fit: --columns and --drop leave no column")
        for name, count in Counter(names[at] for at in places).items():
            if count > 1:
                ways = f"rename all but one, or leave all out ('normkit fit' has --drop {shlex.quote(name)})"
                raise ValueError(f"{path}: {count} columns are named {name!r}; {ways}")
        return places


WHOLE = Choice()
Column = list[str] | np.ndarray  # words, or numbers
Read = tuple[np.ndarray, list[str], Mapping[str, Sequence[str]]]


def read(path: str | Path, choice: Choice = WHOLE) -> Observations:
    """Read a CSV or parquet table, or an array of NumPy; what cannot be fitted is named."""
    return require_numbers(str(path), *_content(Path(path), choice))


def read_more(path: str | Path, data: Observations, sep: str | None = None) -> Observations:
    """Read further samples of what a density was fitted to: as many as there are, of the same columns or shape."""
    columns = data.names if data.values.ndim == 2 else ()
    values, names, _ = _content(Path(path), Choice(columns, sep=sep, known=data.categories))
    if values.shape[1:] != data.values.shape[1:] or values.ndim != data.values.ndim:
        raise ValueError(f"{path}: samples must be of the shape {data.values.shape[1:]}, not {values.shape[1:]}")
    if not len(values):
        raise ValueError(f"{path}: it holds no samples")
    if (values.dtype == np.uint8) != data.bytes:
        raise ValueError(f"{path}: it holds {values.dtype}, and the density is of {data.values.dtype}")
    if names and names != data.names:
        values = values[:, [names.index(name) for name in data.names]]
    broken = ~np.isfinite(values.astype(np.float64)).reshape(len(values), -1).all(1)
    if broken.any():
        raise ValueError(f"{path}: a value is missing or infinite in row {1 + int(broken.argmax())}")
    return data._replace(values=values)


def _content(path: Path, choice: Choice) -> Read:
    readers: dict[str, Callable[[Path, Choice], Read]] = {
        ".csv": _csv,
        ".parquet": _parquet,
        ".npy": _array,
        ".npz": _array,
    }
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: a table is a file that ends in {', '.join(readers)}")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    return readers[path.suffix.lower()](path, choice)


def require_numbers(
    where: str, values: np.ndarray, names: Sequence[str] = (), categories: Mapping[str, Sequence[str]] | None = None
) -> Observations:
    """Require numbers, none missing, enough rows, and columns that vary."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{where}: it must hold numbers, not {values.dtype}")
    if values.ndim not in (2, 4):
        raise ValueError(f"{where}: it must be a table (rows, columns) or images (N, C, H, W), not {values.shape}")
    if len(values) < LEAST:
        raise ValueError(f"{where}: {len(values)} rows are too few for a density and a held-out part; {LEAST} at least")
    named = [str(name) for name in names] or [f"x{place}" for place in range(values.shape[1])]
    if values.ndim == 2:
        for name, column in zip(named, values.T, strict=True):
            _require_density(f"{where}: column {name!r}", name, column, (categories or {}).get(name, column))
    elif (broken := ~np.isfinite(_narrow(values)).reshape(len(values), -1).all(1)).any():
        row = 1 + int(broken.argmax())
        raise ValueError(f"{where}: images must hold finite numbers of float32; row {row} does not")
    return Observations(values, named, values.dtype == np.uint8, categories or {})


def _require_density(where: str, name: str, column: np.ndarray, words: Sequence[Any]) -> None:
    """Require that a column has a density: that no number is missing, and that it has a spread."""
    wide = column.astype(np.float64)
    for one, several, wrong in (
        ("a missing value", "missing values", np.isnan(wide)),
        ("an infinite value", "infinite values", np.isinf(wide)),
        ("a value beyond float32", "values beyond float32", np.isinf(_narrow(wide))),
    ):
        if wrong.any():
            count = f"{one}, " if wrong.sum() == 1 else f"{wrong.sum()} {several}, the first "
            raise ValueError(f"{where} has {count}in row {1 + wrong.argmax()}")
    require_spread(where, name, column, words)


def _narrow(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def require_spread(where: str, name: str, column: np.ndarray, words: Sequence[Any]) -> None:
    """Require that not all numbers of a column are one, as written or in float32."""
    if (column == column[0]).all():
        raise ValueError(f"{where} has one value, {words[0]}, and so no density; {_leave_out(name)}")
    spacing, spread = float(np.spacing(np.float32(np.abs(column).max()))), float(column.astype(np.float64).std())
    if spread < 100 * spacing:
        raise ValueError(
            f"{where} spreads by {spread:.3g} around {column.mean():.6g}, where float32 has steps of {spacing:.3g}; "
            "subtract its mean"
        )


def few(data: Observations) -> list[str]:
    """Return the names of the columns of a table that hold few values, many times each."""
    return [name for name, column in _columns(data) if len(np.unique(column)) <= min(LEAST, len(column) // 2)]


def numbering(data: Observations) -> list[str]:
    """Return the names of the columns of a table that number its rows, in any order."""
    return [name for name, column in _columns(data) if (np.diff(np.sort(column)) == 1).all()]


def _columns(data: Observations) -> list[tuple[str, np.ndarray]]:
    wide = data.values.astype(np.float64)
    named = zip(data.names, wide.T, strict=True) if wide.ndim == 2 else ()
    return [(name, column) for name, column in named if name not in data.categories]


def _table(path: Path, columns: Mapping[str, Column], choice: Choice, comma: bool = False) -> Read:
    """Read columns as numbers or categories."""
    encodings = {name: _codes_of(f"{path}: column {name!r}", name, own, choice, comma) for name, own in columns.items()}
    values = np.stack([column for column, _ in encodings.values()], 1)
    return values, list(columns), {name: words for name, (_, words) in encodings.items() if words}


def _codes_of(where: str, name: str, column: Column, choice: Choice, comma: bool) -> tuple[np.ndarray, Sequence[str]]:
    """Return a column's numbers, and its categories, if it holds some, in their order."""
    words = [str(value.item()) for value in column] if isinstance(column, np.ndarray) else column
    if choice.known is not None and name in choice.known:
        return _by_known(where, words, choice.known[name]), choice.known[name]
    asked = name in choice.categories
    if isinstance(column, np.ndarray) and not asked:
        return column.astype(np.float64), ()
    numbers = [np.nan if word.strip().lower() in GONE else _number(word, comma) for word in words]
    if None not in numbers and not asked:
        return np.array(numbers, dtype=np.float64), ()
    categories = _categories(where, name, words, numbers, asked)
    return _by_known(where, words, categories), categories


def _categories(
    where: str, name: str, words: Sequence[str], numbers: Sequence[float | None], asked: bool
) -> Sequence[str]:
    """Return the categories of a column in order: of text, or of numbers where that is asked for."""
    known = {
        word: number for word, number in zip(words, numbers, strict=True) if number is None or not np.isnan(number)
    }
    decimal = next((word for word in known if COMMA.fullmatch(word)), None)
    if not asked and decimal is not None:
        raise ValueError(
            f"{where} holds {decimal!r} in row {1 + words.index(decimal)}: a comma stands before decimals only where ; "
            "separates columns; write a point"
        )
    if not asked and any(number is not None for number in known.values()):
        row = numbers.index(None)
        raise ValueError(f"{where} holds text, {words[row]!r} in row {1 + row}; {_leave_out(name)}")
    if len(known) > min(MOST, len(words) // 2):
        raise ValueError(
            f"{where} holds text of {len(known)} values, too many for categories of {len(words)} rows; "
            f"{_leave_out(name)}"
        )
    return sorted(known) if None in known.values() else sorted(known, key=lambda word: known[word] or 0)


def _by_known(where: str, words: Sequence[str], order: Sequence[str]) -> np.ndarray:
    places = {word: float(place) for place, word in enumerate(order)}
    for row, word in enumerate(words, 1):
        if word not in places and word.strip().lower() not in GONE:
            raise ValueError(f"{where} holds {word!r} in row {row}, and its categories are {', '.join(order)}")
    return np.array([places.get(word, np.nan) for word in words])


def _csv(path: Path, choice: Choice) -> Read:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: it is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    text = text.strip("\r\n")
    try:
        sep = choice.sep or separator(text)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=sep))
    except csv.Error as error:
        raise ValueError(f"{path}: it is no CSV, or a quote in it is not closed: {error}") from error
    narrow = all(len(row) <= 1 for row in rows)  # a blank line then is a row whose one value is missing
    rows = [row or [""] for row in rows if row or narrow]
    if not rows:
        raise ValueError(f"{path}: it is empty")
    comma = sep == ";"  # where columns are separated so, a comma stands before decimals
    header = _is_header(rows[0], comma)
    names = rows.pop(0) if header else [f"x{place}" for place in range(len(rows[0]))]
    for place, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(f"{path}: row {place} has {len(row)} values, and there are {len(names)} columns")
    if header and not _counts(names):
        columns = ([row[at] for row in rows] for at in range(len(names)))
        if any(_is_as_data(name, column, comma) for name, column in zip(names, columns, strict=True)):
            what = f"the first row, {listed(names)}, was read as a header; if it is data, write names above it"
            warnings.warn(f"{path}: {what}", stacklevel=2)
    return _table(path, {names[at]: [row[at] for row in rows] for at in choice.places(path, names)}, choice, comma)


def _is_header(row: list[str], comma: bool) -> bool:
    """Whether a first row names the columns: by text, or by 0, 1, 2 as pandas does, maybe after the index's empty cell.

    >>> [_is_header(row, comma=False) for row in (["a", "1"], ["0", "1"], ["", "0", "1"], ["0", "2"], ["", "1"])]
    [True, True, True, False, False]
    """
    if _counts(row):
        return any(row)
    return any(_number(word, comma) is None and word.strip().lower() not in GONE for word in row)


def _counts(row: list[str]) -> bool:
    numbers = numbered(len(row))
    return row in (numbers, ["", *numbers[:-1]])


def _is_as_data(name: str, column: Sequence[str], comma: bool) -> bool:
    """Whether a name is like what stands below it: a number above numbers, or one of the column's words."""
    if name.strip().lower() in GONE:
        return False
    return name in column or (
        _number(name, comma) is not None and any(_number(word, comma) is not None for word in column)
    )


def listed(words: Sequence[str]) -> str:
    """Return the first of some words."""
    return ", ".join(words[:SHOWN]) + (", ..." if len(words) > SHOWN else "")


def numbered(count: int) -> list[str]:
    """Return the names of columns that have but numbers for names."""
    return [str(place) for place in range(count)]


def separator(text: str) -> str:
    r"""Return what separates the columns of a CSV: what divides each of its first rows into as many columns.

    >>> separator("0,5;1,5"), separator("a,b;c\n1,2"), separator("a\tb\n1\t2"), separator("a\n1")
    (';', ',', '\t', ',')
    """

    def divides(sep: str) -> bool:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=sep)
        widths = {len(row) for row in itertools.islice(filter(None, rows), LOOKED_AT)}
        return len(widths) == 1 and widths != {1}

    return next(filter(divides, SEPARATORS), ",")


def _leave_out(name: str) -> str:
    return f"leave it out ('normkit fit' has --drop {shlex.quote(name)})"


def _number(word: str, comma: bool = False) -> float | None:
    if "_" in word:  # which Python takes between digits, as in 10_20
        return None
    try:
        return float(word.replace(",", ".") if comma else word)
    except ValueError:
        return None


def _parquet(path: Path, choice: Choice) -> Read:
    require("pyarrow")
    arrow_table = importlib.import_module("pyarrow.parquet").read_table(path)
    names = [arrow_table.column_names[at] for at in choice.places(path, arrow_table.column_names)]
    return _table(path, {name: _of_arrow(path, name, arrow_table.column(name)) for name in names}, choice)


def _of_arrow(path: Path, name: str, column: Any) -> Column:
    if "string" in str(column.type).partition(",")[0] and "list" not in str(column.type):  # also of a dictionary
        return ["" if word is None else word for word in column.to_pylist()]
    values = column.to_numpy()
    if values.dtype.kind not in "biuf" or values.ndim != 1:
        raise ValueError(f"{path}: column {name!r} holds {values.dtype}, not numbers; {_leave_out(name)}")
    return values


def _array(path: Path, choice: Choice) -> Read:
    array = _load(path)
    if array.ndim != 2:
        if choice.columns or choice.drop or choice.categories:
            raise ValueError(f"{path}: columns are asked for, and it holds no table but an array of {array.shape}")
        return array, [], {}
    names = [f"x{place}" for place in range(array.shape[1])]
    places = choice.places(path, names)
    if not choice.categories and not choice.known:
        return array[:, places], [names[at] for at in places], {}
    return _table(path, {names[at]: array[:, at] for at in places}, choice)


def _load(path: Path) -> np.ndarray:
    try:
        contents = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: it must be an array of numbers as numpy.save writes it: {error}") from error
    if isinstance(contents, np.ndarray):
        return native(contents)
    if len(contents.files) != 1:
        raise ValueError(f"{path}: it must hold one array, and holds {', '.join(contents.files) or 'none'}")
    return native(contents[contents.files[0]])
