"""What a density is fitted to: a table or an array, read and checked."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from normkit.optional import require

LEAST = 20  # rows, of which a tenth is held out twice
GONE = ("", "na", "nan", "null", "none")


class Data(NamedTuple):
    """Samples (N, ...), the names of columns, and whether they are bytes, as of images."""

    values: np.ndarray
    names: list[str]
    bytes: bool


def read(path: str | Path) -> Data:
    """Read a CSV or parquet table, or an array of NumPy; what cannot be fitted is named."""
    path = Path(path)
    readers = {".csv": _csv, ".parquet": _parquet, ".npy": _array, ".npz": _array}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: a table is a file that ends in {', '.join(readers)}")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    values, names = readers[path.suffix.lower()](path)
    return checked(str(path), values, names)


def checked(where: str, values: np.ndarray, names: Sequence[str] = ()) -> Data:
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
            wide = column.astype(np.float64)
            for what, wrong in (("a missing", np.isnan(wide)), ("an infinite", np.isinf(wide))):
                if wrong.any():
                    several = f"{wrong.sum()} {what.split()[1]} values, the first "
                    count = f"{what} value, " if wrong.sum() == 1 else several
                    raise ValueError(f"{where}: column {name!r} has {count}in row {1 + wrong.argmax()}")
            if (column == column[0]).all():
                raise ValueError(
                    f"{where}: column {name!r} has one value, {column[0]}, and so no density; leave it out"
                )
            _tell_apart(where, name, column)
    elif not np.isfinite(values.astype(np.float64)).all():
        raise ValueError(f"{where}: images must hold finite numbers")
    return Data(values, named, values.dtype == np.uint8)


def _tell_apart(where: str, name: str, column: np.ndarray) -> None:
    """Require that float32, which flows compute in, keeps the values of a column apart."""
    spacing, spread = float(np.spacing(np.float32(np.abs(column).max()))), float(column.astype(np.float64).std())
    if spread < 100 * spacing:
        raise ValueError(
            f"{where}: column {name!r} spreads by {spread:.3g} around {column.mean():.6g}, where float32 has steps of "
            f"{spacing:.3g}; subtract its mean"
        )


def few(data: Data) -> list[str]:
    """Return the names of the columns of a table that hold few values, many times each."""
    if data.values.ndim != 2:
        return []
    found = zip(data.names, data.values.T, strict=True)
    return [name for name, column in found if len(np.unique(column)) <= min(LEAST, len(column) // 2)]


def _csv(path: Path) -> tuple[np.ndarray, list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows:
        raise ValueError(f"{path}: it is empty")
    head = any(_number(word) is None and word.strip().lower() not in GONE for word in rows[0])
    names = rows.pop(0) if head else [f"x{place}" for place in range(len(rows[0]))]
    return np.array([_row(path, names, place, row) for place, row in enumerate(rows, 1)]).reshape(-1, len(names)), names


def _row(path: Path, names: Sequence[str], place: int, row: Sequence[str]) -> list[float]:
    if len(row) != len(names):
        raise ValueError(f"{path}: row {place} has {len(row)} values, and there are {len(names)} columns")
    found = []
    for name, word in zip(names, row, strict=True):
        value = np.nan if word.strip().lower() in GONE else _number(word)
        if value is None:
            raise ValueError(f"{path}: column {name!r} holds text, {word!r} in row {place}; leave it out")
        found.append(value)
    return found


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _parquet(path: Path) -> tuple[np.ndarray, list[str]]:
    require("datasets")  # which brings pyarrow
    found = importlib.import_module("pyarrow.parquet").read_table(path)
    columns = {name: found.column(name).to_numpy() for name in found.column_names}
    for name, column in columns.items():
        if column.dtype.kind not in "biuf" or column.ndim != 1:
            raise ValueError(f"{path}: column {name!r} holds {column.dtype}, not numbers; leave it out")
    return np.stack([column.astype(np.float64) for column in columns.values()], 1), list(columns)


def _array(path: Path) -> tuple[np.ndarray, list[str]]:
    try:
        found = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path}: it must be an array of numbers as numpy.save writes it: {error}") from error
    if isinstance(found, np.ndarray):
        return found, []
    if len(found.files) != 1:
        raise ValueError(f"{path}: it must hold one array, and holds {', '.join(found.files) or 'none'}")
    return found[found.files[0]], []
