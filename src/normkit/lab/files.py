"""The files of a comparison: where they lie, and how one is written so that no reader ever sees half of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.files import FULL, leftovers, writing
from normkit.files import Unwritable as Unwritable
from normkit.files import beside as beside
from normkit.files import replace_file as replace_file

if TYPE_CHECKING:
    import numpy as np


class Damaged(ValueError):
    """A file does not hold what was written into it."""


def seal(content: Mapping[str, Any], indent: int | None = None) -> str:
    """Return content as JSON with a seal, a hash of it, by which it is known not to be what was written."""
    return json.dumps({**content, "seal": _seal(content)}, indent=indent) + "\n"


def unseal(text: bytes | str) -> Any:
    """Return the content of JSON without its seal, which must fit; files of before there were seals have none."""
    content = json.loads(text.decode() if isinstance(text, bytes) else text)
    if isinstance(content, dict) and "seal" in content and content.pop("seal") != _seal(content):
        raise ValueError("it is not what was written")
    return content


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def is_full(error: Exception) -> bool:
    """Whether an error is that of a disk which takes no more, and so no fault of the run that met it."""
    return isinstance(error, Unwritable) or (isinstance(error, OSError) and error.errno in FULL)


class Folder:
    """The paths of a comparison's folder."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self.plan = self.root / "plan.json"
        self.report = self.root / "index.html"
        self.speed = self.root / "speed.json"
        self.times = self.root / "times.json"
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
        for path in (self.checkpoint(run), *leftovers(self.checkpoint(run))):
            path.unlink(missing_ok=True)

    def lock_of(self, run: str) -> Path:
        """What the process that trains a run keeps locked."""
        return self.checkpoints / f"{run}.lock"

    def create(self) -> None:
        """Make the folders."""
        for path in (self.runs, self.checkpoints):
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)


def native(array: np.ndarray) -> np.ndarray:
    """Return an array in this machine's order of bytes, the only one that torch takes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def set_aside(path: Path, why: str = "damaged") -> Path:
    """Rename a file that is damaged or not wanted, so that another can take its place; return the new name."""
    names = (path.with_name(f"{path.name}.{why}{number}") for number in itertools.chain([""], itertools.count(2)))
    moved = next(name for name in names if not os.path.lexists(name))
    with writing(moved):
        os.replace(path, moved)
    return moved
