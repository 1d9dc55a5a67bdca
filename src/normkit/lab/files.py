"""The files of a comparison: where they lie, and how one is written so that nobody ever sees half of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)


class Damaged(ValueError):
    """A file does not hold what was written into it."""


class Unwritable(OSError):
    """A file of the comparison cannot be written: the disk is full, or gone. No fault of what is trained."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an error inside that it is of writing ``path``."""
    try:
        yield
    except OSError as error:
        raise Unwritable(error.errno, error.strerror or str(error), str(path)) from error


class Folder:
    """The paths of a comparison's folder."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self.plan = self.root / "plan.json"
        self.report = self.root / "index.html"
        self.speed = self.root / "speed.json"
        self.lock = self.root / ".lock"
        self.runs = self.root / "runs"
        self.checkpoints = self.root / "checkpoints"

    def log(self, run: str) -> Path:
        """The log of a run."""
        return self.runs / f"{run}.jsonl"

    def logs(self) -> list[Path]:
        """All logs there are."""
        return sorted(self.runs.glob("*.jsonl"))

    def checkpoint(self, run: str) -> Path:
        """The checkpoint of a run."""
        return self.checkpoints / f"{run}.pt"

    def forget(self, run: str) -> None:
        """Delete the checkpoint of a run that has ended, and one that a kill left half written."""
        for path in (self.checkpoint(run), partial(self.checkpoint(run))):
            path.unlink(missing_ok=True)

    def lock_of(self, run: str) -> Path:
        """What the process that trains a run keeps locked."""
        return self.checkpoints / f"{run}.lock"

    def create(self) -> None:
        """Make the folders."""
        for path in (self.runs, self.checkpoints):
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Delete what a comparison has written, and nothing else."""
        written = [*self.root.glob("plan.json*"), self.speed, *self.runs.glob("*.jsonl*"), *self.checkpoints.glob("*")]
        with writing(self.root):
            for path in written:
                path.unlink(missing_ok=True)


def partial(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(path.name + ".partial")


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give a place beside ``path`` to write to, which then takes its place; after an error, nothing has changed."""
    there = partial(path)
    try:
        with writing(path):
            yield there
            os.replace(there, path)
    except BaseException:
        there.unlink(missing_ok=True)
        raise


def replace_file(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there."""
    with beside(path) as there:
        there.write_text(text, encoding="utf-8")


def set_aside(path: Path, why: str = "damaged") -> Path:
    """Rename a file that is damaged or not wanted, so that another can take its place; return the new name."""
    moved = path.with_name(f"{path.name}.{why}")
    with writing(moved):
        os.replace(path, moved)
    return moved
