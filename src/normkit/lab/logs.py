"""The log of a run: what can stand in it, how it is written, and the one way in which it is read.

Each line is an event, as JSON, with a checksum of its own. The last line of a run that has ended carries a seal, a hash
of all that the log says, by which a log that is no longer what was written is known. A kill may leave half a line,
which is cut off when the run goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from normkit import files
from normkit.lab.files import Damaged, writing
from normkit.page import nan_to_none as nan_to_none

CRC = re.compile(rb', "crc": "([0-9a-f]{8})"}$')
START, STEP, EVAL, PROBE, FOUND, NOTE, END = "start", "step", "eval", "probe", "found", "note", "end"
DONE, DIVERGED, CRASHED, INTERRUPTED = "done", "diverged", "crashed", "interrupted"

FIELDS: dict[str, dict[str, Any]] = {
    START: {"variant": str, "lr": int | float, "seed": int},
    STEP: {"step": int},
    EVAL: {"step": int},
    PROBE: {"step": int, "layers": list},
    FOUND: {"seen": str, "findings": list},
    NOTE: {"text": str},
    END: {"status": str},
}
"""What an event must have, and of which type; it may have more, and other events pass unread."""


class Mark(NamedTuple):
    """A place in a log: so many bytes, and the hash of what stands before."""

    bytes: int
    sha256: str


BEGINNING = Mark(0, hashlib.sha256().hexdigest())


class Read(NamedTuple):
    """What a log says: its events, and how many lines are none.

    torn: whether the last line is half a one.
    whole: whether the run has ended, and the log is what was written. One that ended without a seal, as they did
        before there were seals, is whole if every line can be read.
    """

    events: list[dict[str, Any]]
    broken: int
    torn: bool
    whole: bool

    @property
    def damaged(self) -> bool:
        """Whether the log is not what was written: a kill alone leaves half a line, and no end."""
        return self.broken > self.torn or bool(self.end and not self.whole)

    @property
    def start(self) -> dict[str, Any]:
        """The first line of a run that has begun, else empty."""
        return next(reversed(self.of(START)), {})

    @property
    def end(self) -> dict[str, Any]:
        """The last line of a run that came to an end, else empty."""
        return self.events[-1] if self.events and self.events[-1]["event"] == END else {}

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind."""
        return [event for event in self.events if event["event"] == kind]


def read(path: Path) -> Read:
    """Read a log; what is no event is counted. A log that is not there is empty."""
    raw = path.read_bytes() if path.is_file() else b""
    lines = [line for line in raw.split(b"\n") if line.strip()]
    entries = [event_of(line) for line in lines]
    events = [event for event in entries if event is not None]
    broken = len(entries) - len(events)
    torn = bool(lines) and not raw.endswith(b"\n")
    read = Read(events, broken, torn, False)
    if not read.end or broken or torn:
        return read
    before = hashlib.sha256(raw[: -len(lines[-1]) - 1])
    return read._replace(whole=read.end.get("seal") in (None, seal_of(before, read.end)))


def event_of(line: bytes | str) -> dict[str, Any] | None:
    """Return the event that a line is, or None; lines of before they had checksums are taken as they are."""
    raw = line.encode() if isinstance(line, str) else line
    crc = CRC.search(raw)
    body = raw if crc is None else raw[: crc.start()] + b"}"
    if crc is not None and int(crc[1], 16) != zlib.crc32(body):
        return None
    try:
        event = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    fields = FIELDS.get(event["event"], {})
    return event if all(isinstance(event.get(name), kind) for name, kind in fields.items()) else None


def seal_of(before: Any, end: Mapping[str, Any]) -> str:
    """Return the seal of a log: the hash of what stands before its end, and of the end but for the seal."""
    digest = before.copy()
    digest.update(json.dumps({key: value for key, value in end.items() if key != "seal"}).encode())
    return digest.hexdigest()


class Log:
    """Appends events to a file, a line each, seen by others at once. Without a path, it keeps quiet.

    What was there is kept as far as ``mark``, or without one as far as its last whole line.
    """

    def __init__(self, path: Path | None, mark: Mark | None = None):
        self.path = path
        self.digest, self.size = hashlib.sha256(), 0
        if path is None:
            return
        existing = path.read_bytes() if path.is_file() else b""
        kept = existing[: existing.rfind(b"\n") + 1 if mark is None else mark.bytes]
        self.digest.update(kept)
        self.size += len(kept)
        if mark not in (None, self.mark()):
            raise Damaged(f"{path} is not what it was when the checkpoint was written")
        with writing(path):
            self.file = path.open("ab", buffering=0)
            self.file.truncate(len(kept))

    def mark(self) -> Mark:
        """Tell where the log is now."""
        return Mark(self.size, self.digest.hexdigest())

    def write(self, event: str, **values: Any) -> dict[str, Any]:
        """Append an event; return it."""
        entry = {"event": event, **values}
        if self.path is not None:
            body = json.dumps(entry)
            line = f'{body[:-1]}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n'.encode()
            with writing(self.path):
                rest = memoryview(line)
                while rest:
                    rest = rest[self.file.write(rest) :]
            self.digest.update(line)
            self.size += len(line)
        return entry

    def end(self, status: str, **values: Any) -> dict[str, Any]:
        """Append the last line, with its seal, wait until the disk has it all, and close."""
        entry = {"event": END, "status": status, **values}
        written = self.write(**entry, seal=seal_of(self.digest, entry))
        self.settle()
        self.close()
        return written

    def settle(self) -> None:
        """Wait until the disk has what was written."""
        if self.path is not None:
            with writing(self.path):
                os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            self.file.close()


class Tail:
    """Follows a log that others write, reading only what was added."""

    def __init__(self, path: Path):
        self.lines = files.Tail(path)

    def added(self) -> list[dict[str, Any]]:
        """Return the events since the last call; all of them again where a run has begun again."""
        _, lines = self.lines.added()
        return [event for line in lines if (event := event_of(line)) is not None]
