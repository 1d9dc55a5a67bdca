"""What was seen: every number by where, what and step, to be asked, judged, drawn, kept and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from normkit.watching.store import MISSING, Column, Store

if TYPE_CHECKING:
    from normkit.watching.diagnosis import Diagnosis

Array = Any  # of numpy

WATCH, COLUMNS, SAMPLE, NOTE, END = "watch", "columns", "sample", "note", "end"
"""The lines of a file: facts once, columns where they change, a row each sample, notes, and a last line."""

WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Seen:
    """What can be done with what was seen, during a watch, after it, and from a file."""

    def history(self) -> History:
        """Return what was seen so far."""
        raise NotImplementedError

    def diagnosis(self) -> Diagnosis:
        """Return what goes wrong, what shows it, and what would help; the gravest first."""
        from normkit.watching.diagnosis import diagnose

        return diagnose(self.history())

    def save(self, path: str | Path) -> Path:
        """Write what was seen as lines of JSON, which :func:`load` reads."""
        from normkit.watching.writers import write_whole

        return write_whole(self.history(), Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Return what was seen as plain values."""
        history = self.history()
        return {
            "facts": history.facts,
            "notes": history.notes,
            "columns": [[*column, word] for column, word in zip(history.columns, history.words, strict=True)],
            "steps": history.steps,
            "values": [plain(row) for row in history.table],
        }


class History(Seen):
    """The samples of a training.

    steps: when they were taken. columns: where and what, in the order in which a forward pass comes to them.
    facts: what is known of model and optimizer. notes: what could not be seen, and why.
    """

    def __init__(self, store: Store, facts: dict[str, Any], notes: Sequence[str] = ()):
        self.store, self.facts, self.notes = store, facts, list(notes)
        self.steps, self.columns, self.words = list(store.steps), list(store.columns), list(store.words)
        self.table = store.table()

    def history(self) -> History:
        """Return itself."""
        return self

    def names(self, what: str) -> list[str]:
        """Return where a number was read, in the order of the forward pass."""
        return [where for where, found in self.columns if found == what]

    def series(self, where: str, what: str) -> Array:
        """Return a number at every sample: float64, NaN where it was NaN, and where it was not read."""
        place = self.store.columns.get((where, what))
        if place is None:
            return np.full(len(self.steps), math.nan)
        found = self.table[:, place].double().numpy().copy()
        found[self.table[:, place].numpy() == np.float32(MISSING)] = math.nan
        return found

    def was_read(self, where: str, what: str) -> Array:
        """Return at which samples a number was read."""
        place = self.store.columns.get((where, what))
        if place is None:
            return np.zeros(len(self.steps), bool)
        return self.table[:, place].numpy() != np.float32(MISSING)

    def of(self, what: str) -> dict[str, Array]:
        """Return a number at every sample, by where it was read."""
        return {where: self.series(where, what) for where in self.names(what)}

    def late(self, what: str) -> dict[str, float]:
        """Return what a number has come to: the median of the last quarter of its samples."""
        return {where: settled(series) for where, series in self.of(what).items()}

    def since(self, where: str, what: str, ill: Any) -> int | None:
        """Return the first step from which on a number was always so."""
        series = self.series(where, what)
        first = None
        for step, value in zip(self.steps, series, strict=True):
            if math.isnan(value):
                continue
            first = (first or step) if ill(value) else None
        return first

    def rates(self, name: str) -> Array:
        """Return the learning rate of a parameter at every sample."""
        return self.series(f"group {self.facts['group_of'].get(name, 0)}", "lr")


def settled(series: Array) -> float:
    """Return the median of the last quarter of the samples that there are."""
    there = series[~np.isnan(series)]
    return float(np.median(there[-max(1, len(there) // 4) :])) if len(there) else math.nan


def plain(row: Tensor | Sequence[float]) -> list[Any]:
    """Write numbers so that JSON has words for all of them; what is missing is None.

    >>> plain(torch.tensor([1.5, float("nan"), MISSING]))
    [1.5, 'nan', None]
    """
    values = row.tolist() if isinstance(row, Tensor) else row
    return [None if v <= MISSING else float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in values]


def numbers(row: Sequence[Any]) -> Tensor:
    """Read what :func:`plain` wrote."""
    return torch.tensor([MISSING if v is None else WORDS[v] if isinstance(v, str) else v for v in row])


def load(path: str | Path) -> History:
    """Read what a watch wrote, also while it is still writing: half a line at the end is left out.

    >>> load("nowhere")
    Traceback (most recent call last):
    ValueError: there is no file nowhere
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    found = read(path.read_text("utf-8").splitlines())
    if found is None:
        raise ValueError(f"{path} was not written by a watch: it has no line of facts")
    return found


def read(lines: Sequence[str]) -> History | None:
    """Make a history of lines, or None where there are no facts among them."""
    store, facts, notes = Store(keep=2**31), None, []
    columns: list[Column] = []
    words: list[str] = []
    for line in lines:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError):
            continue
        if kind == WATCH:
            facts = event["facts"]
        elif kind == COLUMNS:
            columns = [(where, what) for where, what, _ in event["columns"]]
            words = [word for *_, word in event["columns"]]
        elif kind == SAMPLE and len(event["values"]) == len(columns):
            store.add(event["step"], columns, words, numbers(event["values"]))
        elif kind == NOTE:
            notes.append(event["text"])
    return None if facts is None else History(store, facts, notes)
