"""What can be done with what was seen: to be judged, kept, and read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from normkit.files import replace_file
from normkit.watching.diagnosis import Diagnosis, diagnose
from normkit.watching.history import COLUMNS, NOTE, SAMPLE, WATCH, History, numbers, plain
from normkit.watching.page import page
from normkit.watching.store import Column, Store
from normkit.watching.writers import write_whole


class Seen:
    """What can be done during a watch, after it, and with what :func:`load` reads."""

    def history(self) -> History:
        """Return what was seen so far."""
        raise NotImplementedError

    def diagnosis(self) -> Diagnosis:
        """Return what goes wrong, what shows it, and what would help; the gravest first."""
        return diagnose(self.history())

    def save(self, path: str | Path) -> Path:
        """Write what was seen as lines of JSON, which :func:`load` reads."""
        return write_whole(self.history(), Path(path))

    def plot(self, path: str | Path = "watch.html") -> Path:
        """Write a page of the findings, heat maps of layer against step, and profiles by depth; return its path."""
        path = Path(path)
        replace_file(path, page(self.history()))
        return path

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


class Loaded(History, Seen):
    """What a file holds."""

    def history(self) -> History:
        """Return itself."""
        return self


def load(path: str | Path) -> Loaded:
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


def read(lines: Sequence[str]) -> Loaded | None:
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
    return None if facts is None else Loaded(store, facts, notes)
