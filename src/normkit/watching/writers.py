"""Where samples go while a training runs: lines of JSON, TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from normkit.files import Unwritable, beside
from normkit.optional import require
from normkit.watching.history import COLUMNS, END, NOTE, SAMPLE, WATCH, History, json_row
from normkit.watching.lines import FIRST, Reading, Sealed, lines_of
from normkit.watching.sample import Row
from normkit.watching.store import BESIDE, MISSING, Column, Store

FILE = "watch.jsonl"  # in a folder
ENDINGS = (".jsonl", ".json", ".csv", ".log", ".txt")  # of a path that is to be a file; "lr0.01" is to be a folder
TWICE = 2  # so many times what is kept in memory may stand in a file before it is written anew


class Writer(Protocol):
    """What a watch hands its samples to; a writer that fails is left out from then on, with a warning."""

    def write(self, watch: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""

    def close(self, watch: Any) -> None:
        """End."""


class Lines:
    """Appends a line of JSON a sample to a file, which :func:`normkit.watching.load` reads.

    A folder gets the file ``watch.jsonl``. What stands in the file stays: a training that goes on appends its rows, and
    another run begins behind it. A run that has grown to twice what is kept in memory is thinned, as it is there, so
    that it stays bounded too. A file that no watch has written is refused.
    """

    def __init__(self, path: str | Path):
        path = Path(path).absolute()  # a training may change its working directory
        is_file = path.is_file() or (path.suffix.lower() in ENDINGS and not path.is_dir())
        self.path = path if is_file else path / FILE
        self.columns: list[Column] = []
        self.samples = 0
        self.written = 0
        self.sealed: Sealed | None = None
        self.store: Store | None = None  # of the watch as it was when the run began or went on
        self.facts: dict[str, Any] | None = None  # as they were last written
        self.last = 0  # the step of the last sample
        self.begin = self.size = 0  # of this run, and of the file, in bytes
        with contextlib.suppress(OSError):
            if self._content()[: len(FIRST)] not in (b"", FIRST):
                raise ValueError(
                    f"watch: {self.path} is there already and was not written by a watch; it stays as it is"
                )

    def __str__(self) -> str:
        return str(self.path)

    def write(self, watch: Any, step: int, row: Row, values: Tensor) -> None:
        """Append a sample, and before it what has changed."""
        if self.store is not watch.store:  # the first sample, or the watch has gone back to an earlier state
            self._open(watch)
        if self.samples >= TWICE * watch.store.keep:
            self._thin(watch)
        self._facts(watch)
        if row.columns != self.columns:
            self.columns = row.columns
            columns = [[*column, word] for column, word in zip(row.columns, row.words, strict=True)]
            self._append(COLUMNS, columns=columns)
        self._append(SAMPLE, step=step, values=json_row(values))
        self._notes(watch)
        self.samples, self.last = self.samples + 1, step

    def close(self, watch: Any) -> None:
        """Append the last line."""
        if self.samples:
            self._facts(watch)
            self._notes(watch)
            self._append(END, step=watch.step)

    def _open(self, watch: Any) -> None:
        """Begin a run behind those before, or go on with the last one."""
        self.store, self.columns, self.written = watch.store, [], 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self._content()
        whole = content[: content.rfind(b"\n") + 1]  # a kill may have left half a line
        reading, place = Reading(), 0
        for line in whole.splitlines(keepends=True):
            runs = reading.runs
            reading.take(line[:-1])
            self.begin = place if reading.runs > runs else self.begin
            place += len(line)
        if reading.damaged:
            raise ValueError(f"it is damaged: line {reading.damaged} is not what was written")
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        if not watch.before or not reading.runs:
            self.begin, reading = len(whole), Reading()
            reading.store = watch.store.before_last()
        self.sealed, self.size, self.samples = Sealed(reading.seal), len(whole), len(reading.store.steps)
        if self.samples and not reading.sealed:
            self._replace(whole[: self.begin], reading, watch)
        self._append(WATCH, facts=watch.facts, **({"after": watch.before} if self.samples else {}))
        self.facts = watch.facts

    def _content(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    def _thin(self, watch: Any) -> None:
        """Write this run anew, of as many rows as are kept in memory."""
        content, reading = self._content(), Reading(watch.store.keep)
        for line in content[self.begin :].splitlines():
            reading.take(line)
        self._replace(content[: self.begin], reading, watch)
        self.columns, self.samples = list(reading.store.columns), len(reading.store.steps)

    def _replace(self, before: bytes, reading: Reading, watch: Any) -> None:
        self.sealed = Sealed()
        history = History(reading.store, watch.facts, reading.notes)
        content = before + "".join(lines_of(history, ended=False, sealed=self.sealed)).encode()
        with beside(self.path) as temp_path:
            temp_path.write_bytes(content)
        self.size = len(content)

    def _facts(self, watch: Any) -> None:
        """Append the facts where others are trained than before, as of a run that goes on."""
        if watch.facts is not self.facts and self.last:
            self._append(WATCH, facts=watch.facts, after=self.last)
            self.facts = watch.facts

    def _notes(self, watch: Any) -> None:
        for note in watch.notes[self.written :]:
            self._append(NOTE, text=note)
        self.written = len(watch.notes)

    def _append(self, event: str, **values: Any) -> None:
        assert self.sealed is not None
        line = self.sealed.line(event, **values).encode()
        with self.path.open("ab") as file:
            if file.tell() != self.size:
                raise ValueError("another process writes to it as well")
            file.write(line)
        self.size += len(line)


def write_whole(history: History, path: Path) -> Path:
    """Write a history beside its place, then move it there."""
    try:
        with beside(path) as temp_path, temp_path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines_of(history, ended=True))
    except Unwritable as error:
        raise ValueError(str(error)) from error
    return path


def writers_of(to: Any) -> list[Writer]:
    """Return the writers that are meant: a path is one of lines."""
    if to is None:
        return []
    listed: Iterable[Any] = to if isinstance(to, list | tuple) else [to]
    return [Lines(one) if isinstance(one, str | Path) else one for one in listed]


def scalars(row: Row, values: Tensor) -> Iterator[tuple[str, float]]:
    """Return the numbers of a sample by ``what/where``, as boards group them; places of values are left out."""
    for (where, what), word, value in zip(row.columns, row.words, values.tolist(), strict=True):
        if word != BESIDE and not value <= MISSING:  # a float64 of the float32 is not the same
            yield f"{what}/{where or 'model'}", value


class TensorBoard:
    """Hands samples to TensorBoard: ``nk.watch(model, optimizer, to=TensorBoard("runs/one"))``."""

    def __init__(self, folder: str | Path):
        require("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(folder))

    def __str__(self) -> str:
        return f"TensorBoard in {self.board.log_dir}"

    def write(self, watch: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""
        for name, value in scalars(row, values):
            self.board.add_scalar(name, value, step)

    def close(self, watch: Any) -> None:
        """Write the diagnosis as a text, and end."""
        self.board.add_text("diagnosis", str(watch.diagnosis()).replace("\n", "  \n"), watch.step)
        self.board.close()


class WandB:
    """Hands samples to a run of Weights & Biases: ``to=WandB(wandb.init(mode="offline"))``."""

    def __init__(self, run: Any):
        self.run = run

    def __str__(self) -> str:
        return "Weights & Biases"

    def write(self, watch: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""
        self.run.log({"watch/step": step, **{f"watch/{name}": value for name, value in scalars(row, values)}})

    def close(self, watch: Any) -> None:
        """Put the diagnosis into the run's summary; whoever opened the run ends it."""
        self.run.summary["watch/diagnosis"] = str(watch.diagnosis())
