"""Files and folders that are written beside their place and then moved there, so that nobody ever sees half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Unwritable(OSError):
    """A file cannot be written: the disk is full, or gone. No fault of what is written."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an error inside that it is of writing ``path``."""
    try:
        yield
    except OSError as error:
        raise Unwritable(error.errno, error.strerror or str(error), str(path)) from error


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


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Give an empty folder beside ``path``, which then takes its place; after an error, nothing has changed."""
    there, old = partial(path), path.with_name(path.name + ".old")
    with writing(path):
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        try:
            yield there
            if path.exists():
                os.replace(path, old)
            os.replace(there, path)
        finally:
            shutil.rmtree(there, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


class Tail:
    """Follows a file that others write, reading only what was added."""

    def __init__(self, path: Path):
        self.path, self.place, self.file = path, 0, 0

    def added(self) -> tuple[bool, list[bytes]]:
        """Return whether the file was begun anew, and its whole lines since the last call, then from its beginning."""
        try:
            with self.path.open("rb") as file:
                there = os.fstat(file.fileno())
                anew = there.st_ino != self.file or there.st_size < self.place
                self.file, self.place = there.st_ino, 0 if anew else self.place
                file.seek(self.place)
                found = file.read()
        except FileNotFoundError:
            return False, []
        whole = found[: found.rfind(b"\n") + 1]
        self.place += len(whole)
        return anew, [line for line in whole.split(b"\n") if line]
