"""What can be done with what was seen: to be judged, kept, and read again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from normkit.watching.diagnosis import Diagnosis, diagnose
from normkit.watching.drawn import Drawn
from normkit.watching.finding import Finding
from normkit.watching.history import COLUMNS, END, NOTE, SAMPLE, WATCH, History, numbers, plain
from normkit.watching.page import pictures
from normkit.watching.store import Column, Store
from normkit.watching.writers import write_whole


class Seen(Drawn):
    """What can be done during a watch, after it, and with what :func:`load` reads."""

    name = "watch"

    def history(self) -> History:
        """Return what was seen so far."""
        raise NotImplementedError

    def diagnosis(self) -> Diagnosis:
        """Return what goes wrong, what shows it, and what would help; the gravest first."""
        return diagnose(self.history())

    def save(self, path: str | Path) -> Path:
        """Write what was seen as lines of JSON, which :func:`load` reads."""
        return write_whole(self.history(), Path(path))

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        history, found = self.history(), self.diagnosis()
        title = f"{len(found)} finding{'s' * (len(found) != 1)}" if found else "nothing found"
        return title, f"{history.facts['model']}, {history.facts['parameters']:,} parameters, {found.seen}"

    def findings(self) -> tuple[list[Finding], list[str]]:
        """Return the diagnosis in parts."""
        found = self.diagnosis()
        return list(found), list(found.notes)

    def pictures(self) -> list[dict[str, Any]]:
        """Return profiles by depth, and heat maps of layer against step."""
        return pictures(self.history())

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
    reading = Reading()
    for line in path.read_bytes().split(b"\n"):
        reading.take(line)
    found = reading.loaded()
    if found is None:
        raise ValueError(f"{path} was not written by a watch: it has no line of facts")
    return found


class Reading:
    """Takes the lines that a watch wrote, one after another; what is no line of a watch is left out."""

    def __init__(self) -> None:
        self.store = Store(keep=sys.maxsize)
        self.facts: dict[str, Any] | None = None
        self.notes: list[str] = []
        self.columns: list[Column] = []
        self.words: list[str] = []
        self.ended = False

    def take(self, line: str | bytes) -> None:
        """Take a line."""
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError):
            return
        if kind == WATCH:
            self.facts = event["facts"]
        elif kind == COLUMNS:
            self.columns = [(where, what) for where, what, _ in event["columns"]]
            self.words = [word for *_, word in event["columns"]]
        elif kind == SAMPLE and len(event["values"]) == len(self.columns):
            self.store.add(event["step"], self.columns, self.words, numbers(event["values"]))
        elif kind == NOTE:
            self.notes.append(event["text"])
        self.ended = kind == END

    def loaded(self) -> Loaded | None:
        """Return what was taken so far, or None where there are no facts in it."""
        return None if self.facts is None else Loaded(self.store, self.facts, self.notes)
