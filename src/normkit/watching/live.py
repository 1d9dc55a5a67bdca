"""A training that is going on, in the terminal: read from the lines that its watch writes, from any process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from normkit.columns import aligned
from normkit.files import Tail
from normkit.optional import require
from normkit.safe import safe, say
from normkit.watching import health
from normkit.watching.diagnosis import WIDTH, Diagnosis, diagnose
from normkit.watching.history import Array, History
from normkit.watching.lines import FIRST, Reading
from normkit.watching.seen import Loaded, load_history

PERIOD = 0.5  # seconds between two looks
BARS = "▁▂▃▄▅▆▇█"
COURSE = 24  # characters of the course of a number
QUIET = 60.0  # seconds after which a run that has not ended is called silent
FEWEST = 3  # blocks that are shown in however low a terminal


def files_of(place: Path) -> list[Path]:
    """Return the files that watches wrote, the newest first: the one named, or those in a folder and its folders."""
    paths = [place] if place.is_file() else [*place.glob("*.jsonl"), *place.glob("*/*.jsonl")]
    files = []
    for path in paths:
        try:
            with path.open("rb") as file:
                if file.read(len(FIRST)) == FIRST:
                    files.append((-path.stat().st_mtime, path))
        except OSError:
            continue  # it went while we looked
    return [path for _, path in sorted(files)]


class Live:
    """Follows the newest run in a folder, and draws it."""

    def __init__(self, place: Path):
        self.place = place
        self.path: Path | None = None
        self.others = 0
        self.reading = Reading()
        self.history: Loaded | None = None
        self.diagnosis: Diagnosis | None = None

    def look(self) -> bool:
        """Read what was added; return whether the run has ended."""
        paths = files_of(self.place)
        if paths:
            self.others = len(paths) - 1
            if paths[0] != self.path:
                self.path, self.tail = paths[0], Tail(paths[0])
        if self.path is not None:
            anew, lines = self.tail.added()
            self.reading = Reading() if anew else self.reading
            for line in lines:
                self.reading.take(line)
            if lines:
                self.history = load_history(self.reading)
                self.diagnosis = None if self.history is None else diagnose(self.history)
        return self.reading.ended

    def picture(self, height: int = 1000, width: int = WIDTH) -> str:
        """Return the picture of this moment, of so many lines at most, as far as the diagnosis leaves room."""
        if self.history is None or self.diagnosis is None:
            return f"waiting for a run: no file of a watch in {self.place} yet (nk.watch(..., to={str(self.place)!r}))"
        findings = replace(self.diagnosis, unknown=())  # which is for the end, and takes the room of the blocks
        top = [health.head(self.history), self._state(), "", *findings.text(width).split("\n"), ""]
        rows = table(self.history)
        room = max(FEWEST, height - len(top) - 2)
        shown = [rows[0], *(rows[1 + place] for place in _evenly(len(rows) - 1, room))]
        return "\n".join([*top, *aligned(shown, numbers=True)])

    def _state(self) -> str:
        assert self.path is not None
        steps = self.reading.store.steps
        ago = max(0.0, time.time() - self.path.stat().st_mtime) if self.path.is_file() else 0.0
        text = f"step {steps[-1]:,}" if steps else "no sample yet"
        text += ", ended" if self.reading.ended else f", written {_write_time(ago)} ago"
        text += ", silent: has it been broken off?" if ago > QUIET and not self.reading.ended else ""
        text += f"; line {self.reading.damaged} is damaged" if self.reading.damaged else ""
        text += f"; {self.others} older beside it" if self.others else ""
        return f"{text}: {self.path}"  # which may be longer than a line


def table(history: History) -> list[tuple[str, ...]]:
    """Return the table of the blocks' health, and the course of the first number in it over the samples."""
    titles, *rows = health.table(history)
    what = titles[1] if len(titles) > 1 else "rms"
    blocks = [block for block in history.facts["blocks"] if history.was_read(block, what).any()]
    courses = {block or "the model": course(history.series(block, what)) for block in blocks}
    if not any(courses.values()):
        return [titles, *rows]
    return [(*titles, f"{what} so far"), *((*row, courses.get(row[0], "").ljust(COURSE)) for row in rows)]


def course(series: Array) -> str:
    """Draw a number's course by the heights of some bars, from its least to its largest; a blank where it is none.

    >>> course(np.array([1.0, 2.0, float("nan"), 8.0]))
    '▁▂ █'
    >>> course(np.ones(3))
    '▁▁▁'
    """
    parts = [part[np.isfinite(part)] for part in np.array_split(series, min(COURSE, len(series)) or 1)]
    means = np.array([part.mean() if len(part) else np.nan for part in parts])
    if not np.isfinite(means).any():
        return ""
    low, high = np.nanmin(means), np.nanmax(means)
    places = (means - low) / (high - low or np.inf) * (len(BARS) - 1)
    return "".join(" " if np.isnan(place) else BARS[round(place)] for place in places)


def _evenly(count: int, room: int) -> Iterator[int]:
    """Choose places, the last one among them."""
    step = -(-count // room) if count else 1
    return iter(range((count - 1) % step, count, step))


def _write_time(seconds: float) -> str:
    length, unit = (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")
    return f"{seconds / length:.0f} {unit}"


def follow(place: str | Path, once: bool = False) -> Diagnosis | None:
    """Show a run until it ends or the user leaves; ``once``, or where there is no terminal, as it is now."""
    require("rich")
    from rich.console import Console

    if Path(place).is_file() and Path(place).stat().st_size and not files_of(Path(place)):
        raise ValueError(f"{place} was not written by a watch; nk.watch(..., to='runs/one') writes to a folder")
    live, console = Live(Path(place)), Console(highlight=False, markup=False)
    ended = live.look()
    if once or not console.is_terminal:
        if live.history is None:
            raise ValueError(f"{place} holds no file that a watch has written: nk.watch(..., to={str(place)!r})")
        say(live.picture())
        return live.diagnosis
    with contextlib.suppress(KeyboardInterrupt):  # the way to leave
        _draw(live, console, ended)
    return live.diagnosis


def _draw(live: Live, console: Any, ended: bool) -> None:
    from rich.live import Live as Screen
    from rich.text import Text

    def picture() -> Any:
        return Text(safe(live.picture(console.height, console.width), "terminal"), no_wrap=True, overflow="ellipsis")

    with Screen(picture(), console=console, auto_refresh=False) as screen:
        while not ended:
            time.sleep(PERIOD)
            ended = live.look()
            screen.update(picture(), refresh=True)
