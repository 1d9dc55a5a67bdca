"""Where samples go while a training runs: lines of JSON, TensorBoard, Weights & Biases."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from normkit.optional import require
from normkit.watching.history import COLUMNS, END, NOTE, SAMPLE, WATCH, History, plain
from normkit.watching.sample import Row
from normkit.watching.store import BESIDE, MISSING, Column

FILE = "watch.jsonl"  # in a folder
TWICE = 2  # so many times what is kept in memory may stand in a file before it is written anew


class Writer(Protocol):
    """What a watch hands its samples to; a writer that fails is left out from then on."""

    def write(self, seen: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""

    def close(self, seen: Any) -> None:
        """End."""


class Lines:
    """Appends a line of JSON a sample to a file, which :func:`normkit.watching.load` reads.

    A folder gets the file ``watch.jsonl``. A file that has grown to twice what is kept in memory is written anew from
    there, so that it stays bounded too.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        self.path = path / FILE if path.is_dir() or not path.suffix else path
        self.columns: list[Column] = []
        self.samples = 0
        self.told = 0

    def __str__(self) -> str:
        return str(self.path)

    def write(self, seen: Any, step: int, row: Row, values: Tensor) -> None:
        """Append a sample, and before it what has changed."""
        if self.samples == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            self._append(_line(WATCH, facts=seen.facts))
        if self.samples >= TWICE * seen.store.keep:
            write_whole(seen.history(), self.path, ended=False)
            self.columns, self.samples = list(seen.store.columns), len(seen.store.steps)
            return
        if row.columns != self.columns:
            self.columns = row.columns
            told = [[*column, word] for column, word in zip(row.columns, row.words, strict=True)]
            self._append(_line(COLUMNS, columns=told))
        self._append(_line(SAMPLE, step=step, values=plain(values)))
        self._notes(seen)
        self.samples += 1

    def close(self, seen: Any) -> None:
        """Append the last line."""
        if self.samples:
            self._notes(seen)
            self._append(_line(END, step=seen.step))

    def _notes(self, seen: Any) -> None:
        for note in seen.notes[self.told :]:
            self._append(_line(NOTE, text=note))
        self.told = len(seen.notes)

    def _append(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)


def write_whole(history: History, path: Path, ended: bool = True) -> Path:
    """Write a history beside its place, then move it there."""
    beside = path.with_name(path.name + ".partial")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(_lines(history, ended))
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _lines(history: History, ended: bool) -> Iterator[str]:
    yield _line(WATCH, facts=history.facts)
    told = [[*column, word] for column, word in zip(history.columns, history.words, strict=True)]
    yield _line(COLUMNS, columns=told)
    for step, row in zip(history.steps, history.table, strict=True):
        yield _line(SAMPLE, step=step, values=plain(row))
    for note in history.notes:
        yield _line(NOTE, text=note)
    if ended:
        yield _line(END, step=history.steps[-1] if history.steps else 0)


def _line(event: str, **values: Any) -> str:
    return json.dumps({"event": event, **values}) + "\n"


def writers_of(to: Any) -> list[Writer]:
    """Return the writers that are meant: a path is one of lines."""
    if to is None:
        return []
    listed: Iterable[Any] = to if isinstance(to, list | tuple) else [to]
    return [Lines(one) if isinstance(one, str | Path) else one for one in listed]


def scalars(row: Row, values: Tensor) -> Iterator[tuple[str, float]]:
    """Return the numbers of a sample by ``what/where``, as boards group them; places of values are left out."""
    for (where, what), word, value in zip(row.columns, row.words, values.tolist(), strict=True):
        if word != BESIDE and value != MISSING:
            yield f"{what}/{where or 'model'}", value


class TensorBoard:
    """Hands samples to TensorBoard: ``nk.watch(model, optimizer, to=TensorBoard("runs/one"))``."""

    def __init__(self, folder: str | Path):
        require("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(folder))

    def __str__(self) -> str:
        return f"TensorBoard in {self.board.log_dir}"

    def write(self, seen: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""
        for name, value in scalars(row, values):
            self.board.add_scalar(name, value, step)

    def close(self, seen: Any) -> None:
        """Write the diagnosis as a text, and end."""
        self.board.add_text("diagnosis", str(seen.diagnosis()).replace("\n", "  \n"), seen.step)
        self.board.close()


class WandB:
    """Hands samples to a run of Weights & Biases: ``to=WandB(wandb.init(mode="offline"))``."""

    def __init__(self, run: Any):
        self.run = run

    def __str__(self) -> str:
        return "Weights & Biases"

    def write(self, seen: Any, step: int, row: Row, values: Tensor) -> None:
        """Take a sample."""
        self.run.log({"watch/step": step, **{f"watch/{name}": value for name, value in scalars(row, values)}})

    def close(self, seen: Any) -> None:
        """Put the diagnosis into the run's summary; whoever opened the run ends it."""
        self.run.summary["watch/diagnosis"] = str(seen.diagnosis())
