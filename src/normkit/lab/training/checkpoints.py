"""A run's state on the disk, from which it goes on to the same numbers.

It holds tensors and plain values only and is read as such, so that a folder from others cannot run code. The archive
that torch writes has a checksum for each of its parts; torch does not look at them, :func:`load` does.
"""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import torch

from normkit.files import check_archive
from normkit.lab.files import Damaged, beside

PARTS = {"recipe", "log", "training", "chances", "progress"}


class Unportable(ValueError):
    """A state holds what is neither tensor nor plain value, and could not be read again."""


def save(path: Path, state: dict[str, Any], prove: bool = True) -> None:
    """Write a checkpoint beside its place, then move it there; with ``prove``, only once it could be read again."""
    with beside(path) as temp_path:
        with temp_path.open("wb", buffering=0) as file:
            _write(state, Sink(file))
            os.fsync(file.fileno())
        if prove:
            try:
                read_at_once(temp_path, mmap=True)
            except Exception as error:
                raise Unportable(reason(error)) from error


def _write(state: dict[str, Any], sink: Sink) -> None:
    try:
        torch.save(state, sink)  # type: ignore[arg-type]
    except OSError:
        raise
    except Exception as error:
        raise sink.error or Unportable(reason(error)) from error


class Sink:
    """A file for torch, which makes a RuntimeError of any error in writing: here the error itself is kept."""

    def __init__(self, file: Any):
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of it."""
        rest = memoryview(data).cast("B")
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            self.error = error
            raise
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Nothing is kept back."""


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; what is none is :class:`Damaged`, with the reason."""
    try:
        check_archive(path)
        return read_at_once(path)
    except Exception as error:  # a damaged archive can raise nearly anything
        raise Damaged(f"{path} is no checkpoint to go on from: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Say in a line why a state cannot be written or read."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain values"
    return (str(error) or type(error).__name__).splitlines()[0]


def read_at_once(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint without a look at its checksums; with ``mmap``, the tensors not before they are used."""
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    if not isinstance(state, dict) or not state.keys() >= PARTS:
        raise ValueError("it has not the parts of one")
    return state


def chances() -> dict[str, Any]:
    """Return the states of the random number generators, as tensors and numbers."""
    import numpy

    of_numpy, (version, of_python, gauss) = numpy.random.get_state(legacy=False), random.getstate()
    key = torch.from_numpy(of_numpy["state"]["key"].astype(numpy.int64))
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {**of_numpy, "state": {**of_numpy["state"], "key": key}},
        "python": {"version": version, "state": torch.tensor(of_python), "gauss": gauss},
    }


def set_chances(states: dict[str, Any]) -> None:
    """Put the random number generators back into those states."""
    import numpy

    of_numpy, of_python = states["numpy"], states["python"]
    key = of_numpy["state"]["key"].numpy().astype(numpy.uint32)
    torch.set_rng_state(states["torch"])
    numpy.random.set_state({**of_numpy, "state": {**of_numpy["state"], "key": key}})
    random.setstate((of_python["version"], tuple(of_python["state"].tolist()), of_python["gauss"]))
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
