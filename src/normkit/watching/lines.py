"""The lines of JSON that a watch writes, and how they are read.

Each run begins with a line of facts. Each line ends with a seal, a checksum of all lines of its run up to it: it shows
whether the line is still what was written. A kill may leave half a line at the end.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any

from normkit.watching.diagnosis import all_signs
from normkit.watching.history import COLUMNS, END, NOTE, SAMPLE, SIGNS, WATCH, History, json_row, numbers
from normkit.watching.store import Column, Store

SEAL = re.compile(rb', "seal": "([0-9a-f]{8})"}$')
FIRST = f'{{"event": "{WATCH}"'.encode()


class Sealed:
    """Writes lines, each with its seal."""

    def __init__(self, seal: int = 0):
        self.seal = seal

    def line(self, event: str, **values: Any) -> str:
        """Return a line; one of facts begins a run, unless it goes on ``after`` a step."""
        body = json.dumps({"event": event, **values})[:-1]
        self.seal = zlib.crc32(body.encode(), 0 if _begins(event, values) else self.seal)
        return f'{body}, "seal": "{self.seal:08x}"}}\n'


def _begins(event: str, values: Any) -> bool:
    return event == WATCH and not values.get("after")


def lines_of(history: History, ended: bool, sealed: Sealed | None = None) -> Iterator[str]:
    """Write a history as the lines of a run."""
    line = (sealed or Sealed()).line
    yield line(WATCH, facts=history.facts)
    yield line(COLUMNS, columns=[[*one, word] for one, word in zip(history.columns, history.words, strict=True)])
    for step, row in zip(history.steps, history.table, strict=True):
        yield line(SAMPLE, step=step, values=json_row(row))
    if history.store.signs:
        yield line(SIGNS, **history.store.known_signs())
    for note in history.notes:
        yield line(NOTE, text=note)
    if ended:
        yield line(END, step=history.steps[-1] if history.steps else 0)


def whole_lines(content: bytes) -> list[bytes]:
    """Return the lines of a file but for half a one at the end; one that only lacks its end is whole."""
    lines = content.split(b"\n")
    half = lines.pop()
    with contextlib.suppress(ValueError):
        json.loads(half)
        lines.append(half)
    return [line for line in lines if line.strip()]


class Reading:
    """Takes the lines that a watch wrote, one after another, and has the last run among them.

    ``damaged`` is the number of the first line that is not what was written, or None.
    """

    def __init__(self, keep: int = sys.maxsize) -> None:
        self.keep, self.lines, self.runs, self.seal = keep, 0, 0, 0
        self.damaged: int | None = None
        self.facts: dict[str, Any] | None = None
        self._begin()

    def _begin(self) -> None:
        self.store, self.notes, self.ended, self.sealed = Store(self.keep, all_signs()), list[str](), False, False
        self.columns, self.words = list[Column](), list[str]()

    def take(self, line: str | bytes) -> None:
        """Take a line."""
        self.lines += 1
        raw = line.encode() if isinstance(line, str) else line
        try:
            event = json.loads(raw)
            if _begins(event["event"], event):
                self._begin()
                self.runs, self.seal, self.sealed = self.runs + 1, 0, SEAL.search(raw) is not None
            if not self._is_whole(raw):
                raise ValueError("it was changed")
            self._enter(event["event"], event)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.damaged = self.damaged or self.lines

    def _is_whole(self, raw: bytes) -> bool:
        """Whether a line is what was written; runs of before there were seals have none at all."""
        seal = SEAL.search(raw)
        if seal is None:
            return not self.sealed and b', "seal": "' not in raw
        self.seal = zlib.crc32(raw[: seal.start()], self.seal)
        return self.sealed and int(seal[1], 16) == self.seal

    def _enter(self, kind: str, event: dict[str, Any]) -> None:
        if kind == WATCH:
            self.facts = event["facts"]
            self._cut(event.get("after"))
        elif kind == COLUMNS:
            self.columns = [(where, what) for where, what, _ in event["columns"]]
            self.words = [word for *_, word in event["columns"]]
        elif kind == SAMPLE:
            if len(event["values"]) != len(self.columns):
                raise ValueError("columns and values differ")
            self.store.add(event["step"], self.columns, self.words, numbers(event["values"]))
        elif kind == SIGNS:
            self.store.remember_signs(event)
        elif kind == NOTE and event["text"] not in self.notes:
            self.notes.append(event["text"])
        self.ended = kind == END

    def _cut(self, after: int | None) -> None:
        """Forget the rows behind the step that a run went on from."""
        if after:
            count = sum(step <= after for step in self.store.steps)
            self.store.steps, self.store.rows = self.store.steps[:count], self.store.rows[:count]
