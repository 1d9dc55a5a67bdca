"""Vocabularies: the entries that texts are brought to, each with the names that it goes by."""

from __future__ import annotations

import codecs
import csv
import importlib
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normkit.optional import require
from normkit.text import frames

Names = dict[str, list[str]]
UTF8 = "utf-8-sig"  # with or without a mark at the beginning
SEPARATOR, QUOTED = re.compile(r'sep=([^"\r\n])\r?(?:\n|$)'), re.compile(r'"[^"]*"')
END = "\ue000"  # a row of its own, unless a quote before it is open
NOTHING = {"", "-", "--", "n/a", "na", "nan", "nil", "none", "null", "unknown", "?", "tbd"}


def says_nothing(text: str) -> bool:
    """Whether a cell is empty, or says that it is; signs of no width count for none.

    >>> says_nothing(" N/A "), says_nothing("\u200b"), says_nothing("Nil Armstrong")
    (True, True, False)
    """
    return "".join(sign for sign in text if unicodedata.category(sign) != "Cf").strip().casefold() in NOTHING


def read_vocabulary(source: Any, id: str = "id", name: str = "name", encoding: str = UTF8) -> Names:
    """Return {id: names} of a mapping, pairs (id, name), a data frame, or a file: .csv, .tsv, .json or .parquet.

    Tables have a row for each name and a column of each kind. Names are their own ids where no column of ids is asked
    for and none is called "id". A name alone may stand for a list of one. Numbers are written as text, whole ones
    without decimals. Rows without a name are left out.

    >>> read_vocabulary([("DEU", "Germany"), ("DEU", "Deutschland"), (40, "Austria")])
    {'DEU': ['Germany', 'Deutschland'], '40': ['Austria']}
    """
    if isinstance(source, str | Path):
        return _read_file(Path(source), id, name, encoding)
    if isinstance(source, Mapping):
        return _gather((key, one) for key, names in source.items() for one in _list(key, names))
    if frames.is_frame(source):
        return _of_columns(frames.columns(source), id, name, "the data frame")
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return _gather(map(_pair, source))
    raise TypeError(f"vocabulary must be a mapping, pairs, a data frame or a path, not {type(source).__name__}")


def _read_file(path: Path, id: str, name: str, encoding: str) -> Names:
    if path.suffix.lower() == ".json":
        document = json.loads(decode(path, encoding))
        if not isinstance(document, Mapping):
            raise ValueError(f"{path}: a vocabulary in JSON is an object of id: names")
        return read_vocabulary(document)
    return _of_columns(read_table(path, encoding), id, name, str(path))


def read_table(path: Path, encoding: str = UTF8) -> dict[str, list[str]]:
    """Return the columns of a file with a header; see :func:`read_rows`."""
    header, *rows = read_rows(path, encoding)[0]
    repeated = sorted(one for one, times in Counter(header).items() if times > 1)
    if repeated:
        raise ValueError(f"{path} has more than one column {', '.join(map(repr, repeated))}; rename all but one")
    return {title: [row[at] for row in rows] for at, title in enumerate(header)}


def read_rows(path: Path, encoding: str = UTF8) -> tuple[list[list[str]], str]:
    """Return the rows of a file, the header first, all of its length, and what parts cells.

    That is what Excel's line ``sep=;`` names, a tab in a .tsv, or what the header has most of, outside of quotes, a tab
    before others. Blank lines are left out, but inside of a single column, where they are empty cells; cells that are
    missing at the end are empty. The cells of a .parquet file become text.
    """
    if path.suffix.lower() == ".parquet":
        return _parquet_rows(path), ","
    text = decode(path, encoding).replace("\r\r\n", "\r\n").strip("\r\n")  # lines that were translated twice
    named = SEPARATOR.match(text)
    text = text[named.end() :].lstrip("\r\n") if named else text
    if not text:
        raise ValueError(f"{path} is empty; a header and rows are wanted")
    first = next(re.finditer(rf"({QUOTED.pattern}|[^\r\n])*", text))[0]
    bare = QUOTED.sub("", first)
    signs = "\t" if path.suffix.lower() == ".tsv" else "\t,;|" if "\t" in bare else ",;\t|"
    delimiter = named[1] if named else max(signs, key=lambda sign: (bare.count(sign), first.count(sign)))
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may hold a page
    rows = list(csv.reader(io.StringIO(f"{text}\n{END}", newline=""), delimiter=delimiter))
    if rows.pop() != [END]:
        raise ValueError(f"{path}, row {len(rows) + 1}: a cell begins with a quotation mark that nothing closes")
    width = len(rows[0])
    wide = next((at for at, row in enumerate(rows, 1) if len(row) > width), None)
    if wide:
        raise ValueError(f"{path}, row {wide}: there are more cells than the {width} columns of the header")
    return [row + [""] * (width - len(row)) for row in rows if row or width == 1], delimiter


def _parquet_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table of parquet, the header first; numbers are written as :func:`frames.as_text` has it."""
    require("pyarrow")
    try:
        table = importlib.import_module("pyarrow.parquet").read_table(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except ValueError as error:  # pyarrow's own is one
        raise ValueError(f"{path} is no table of parquet: {error}") from None
    names = table.column_names
    columns = [
        [frames.as_text(f"{path}, column {name!r}", cell) for cell in column.to_pylist()]
        for name, column in zip(names, table.columns, strict=True)
    ]
    return [names, *map(list, zip(*columns, strict=True))]


def decode(path: Path, encoding: str = UTF8) -> str:
    """Return the text of a file; what is no text of that encoding is refused, and how to read it said."""
    try:
        content = path.read_bytes()
        text = content.decode(encoding)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder; a file is wanted") from None
    except LookupError:
        raise ValueError(
            f"--encoding must be one that Python knows, such as cp1252 or utf-16, not {encoding!r}"
        ) from None
    except UnicodeError as error:
        place = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        other = "say which it is by --encoding, such as cp1252, or save it as UTF-8"
        if b"\0" not in content or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            name = "UTF-8" if encoding == UTF8 else encoding
            raise ValueError(f"{path} is not {name}{place}; {other}") from None
        text = "\0"
    if "\0" in text.partition("\n")[0]:  # as in Parquet, workbooks and archives
        wanted = "a CSV, TSV or .parquet is wanted, or --encoding utf-16"
        raise ValueError(f"{path} has NUL bytes, so it is no text; {wanted}")
    return text


def _of_columns(columns: Mapping[str, Sequence[Any]], id: str, name: str, where: str) -> Names:
    for column in (name, *([] if id == "id" else [id])):
        if column not in columns:
            raise ValueError(f"{where} has no column {column!r}; its columns are {', '.join(map(repr, columns))}")
    names = columns[name]
    return _gather(zip(columns.get(id, names), names, strict=True))


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 2:
        raise TypeError(f"vocabulary: pairs (id, name) are wanted, not {item!r}")
    return item[0], item[1]


def _list(key: Any, names: Any) -> Iterable[Any]:
    if isinstance(names, str):
        return [names]
    if isinstance(names, Iterable) and not isinstance(names, bytes | Mapping):
        return names
    raise TypeError(f"vocabulary: names of {key!r} must be a string or several, not {names!r}")


def _gather(pairs: Iterable[tuple[Any, Any]]) -> Names:
    entries: dict[str, dict[str, None]] = {}
    for key, name in pairs:
        if frames.is_missing(name) or name == "":
            continue
        if frames.is_missing(key) or key == "":
            raise ValueError(f"vocabulary: the name {name!r} has no id")
        entries.setdefault(_text("id", key), {})[_text("name", name)] = None
    return {key: list(names) for key, names in entries.items()}


def _text(what: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | bytes) or not frames.is_number(value):
        raise TypeError(f"vocabulary: {what} must be a string or a number, not {value!r}")
    return frames.as_text("vocabulary", value)
