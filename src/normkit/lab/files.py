"""The files of a comparison: a log of lines for every run, and a checkpoint beside it while the run lasts."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import torch

from normkit.lab.plan import replace_file


class Folder:
    """The paths of a comparison's folder."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self.plan = self.root / "plan.json"
        self.runs = self.root / "runs"
        self.checkpoints = self.root / "checkpoints"

    def log(self, run: str) -> Path:
        """The log of a run."""
        return self.runs / f"{run}.jsonl"

    def checkpoint(self, run: str) -> Path:
        """The checkpoint of a run."""
        return self.checkpoints / f"{run}.pt"

    def create(self) -> None:
        """Make the folders."""
        self.runs.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a log; a last line that a kill has cut is left out."""
    if not path.is_file():
        return []
    lines = path.read_text().split("\n")
    return [found for line in lines if (found := _event(line)) is not None]


def _event(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line) if line else None
    except json.JSONDecodeError:
        return None


class Log:
    """Appends events to a file, a line each, seen by others at once."""

    def __init__(self, path: Path | None):
        self.path = path
        self.file = None if path is None else path.open("a")

    @classmethod
    def resumed(cls, path: Path, step: int) -> Log:
        """Go on from ``step``: what was written after it is dropped, everything where it is 0."""
        kept = [e for e in read(path) if step and e["event"] != "end" and e.get("step", 0) <= step]
        replace_file(path, "".join(json.dumps(e) + "\n" for e in kept))
        return cls(path)

    def write(self, event: str, **values: Any) -> dict[str, Any]:
        """Append an event; return it."""
        found = {"event": event, **values}
        if self.file is not None:
            self.file.write(json.dumps(found) + "\n")
            self.file.flush()
        return found

    def settle(self) -> None:
        """Wait until the disk has what was written."""
        if self.file is not None:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


def chances() -> dict[str, Any]:
    """Return the states of the random number generators."""
    import numpy

    states = {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state(), "python": random.getstate()}
    return {**states, "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_chances(states: dict[str, Any]) -> None:
    """Put the random number generators back into those states."""
    import numpy

    torch.set_rng_state(states["torch"])
    numpy.random.set_state(states["numpy"])
    random.setstate(states["python"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint beside its place, then move it there."""
    beside = path.with_name(path.name + ".partial")
    try:
        torch.save(state, beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def load(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint that this program wrote; None if there is none."""
    return torch.load(path, map_location="cpu", weights_only=False) if path.is_file() else None
