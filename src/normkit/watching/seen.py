"""What can be done with what was seen: to be judged, kept, and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from normkit.columns import number_of
from normkit.watching.diagnosis import NO_SAMPLE, Diagnosis, diagnose
from normkit.watching.drawn import Drawn
from normkit.watching.finding import Finding
from normkit.watching.history import NOISE, History, json_row
from normkit.watching.lines import Reading, whole_lines
from normkit.watching.page import pictures
from normkit.watching.signals import noise
from normkit.watching.signals.noise import NoiseScale
from normkit.watching.writers import write_whole


class Seen(Drawn):
    """What can be done during a watch, after it, and with what :func:`load` reads."""

    name = "watch"

    def history(self) -> History:
        """Return what was seen so far."""
        raise NotImplementedError

    def diagnosis(self) -> Diagnosis:
        """Return what goes wrong, what shows it, and what would help; the gravest first."""
        return diagnose(self.history())

    def noise_scale(self) -> NoiseScale:
        """Return the gradient noise scale: about the batch size from which on a larger one helps little.

        It is taken of the gradients that single examples give the gains and shifts of norms (arXiv:2411.00999), at the
        sampled steps; of models with LayerNorm, RMSNorm, GroupNorm or their like, and examples along the first axis.
        """
        history = self.history()
        mask = history.was_read(NOISE, "examples")
        one, batch, examples = (torch.tensor(history.series(NOISE, what)[mask], device="cpu") for what in noise.NUMBERS)
        return noise.noise_scale(one, batch, examples)

    def save(self, path: str | Path) -> Path:
        """Write what was seen as lines of JSON, which :func:`load` reads."""
        return write_whole(self.history(), Path(path))

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        history, diagnosis = self.history(), self.diagnosis()
        nothing = "nothing looked at" if diagnosis.seen == NO_SAMPLE else "nothing found"
        title = number_of(len(diagnosis), "finding") if diagnosis else nothing
        return title, f"{history.facts['model']}, {history.facts['parameters']:,} parameters, {diagnosis.seen}"

    def findings(self) -> tuple[list[Finding], list[str]]:
        """Return the diagnosis in parts."""
        diagnosis = self.diagnosis()
        return list(diagnosis), list(diagnosis.notes)

    def pictures(self) -> list[dict[str, Any]]:
        """Return profiles by depth, and heat maps of layer against step."""
        return pictures(self.history())

    def to_dict(self) -> dict[str, Any]:
        """Return what was seen as plain values."""
        history = self.history()
        return {
            "facts": history.facts,
            "notes": history.notes,
            "columns": [[*column, word] for column, word in zip(history.columns, history.words, strict=True)],
            "steps": history.steps,
            "values": [json_row(row) for row in history.table],
        }


class Loaded(History, Seen):
    """What a file holds."""

    def history(self) -> History:
        """Return itself."""
        return self


def load(path: str | Path) -> Loaded:
    """Read what a watch wrote to ``path``, also while it is still writing: half a line at the end is left out.

    Of a file that several runs wrote to, the last one is read. A line that is not what was written is an error.

    >>> load("nowhere")
    Traceback (most recent call last):
    ValueError: there is no file nowhere
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    reading = Reading()
    for line in whole_lines(path.read_bytes()):
        reading.take(line)
    record = load_history(reading)
    if record is None:
        raise ValueError(f"{path} was not written by a watch: it has no line of facts")
    if reading.damaged:
        raise ValueError(f"{path} is damaged: line {reading.damaged} is not what was written")
    return record


def load_history(reading: Reading) -> Loaded | None:
    """Return what was read so far of the last run, or None where there are no facts in it."""
    return None if reading.facts is None else Loaded(reading.store, reading.facts, reading.notes)
