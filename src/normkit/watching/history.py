"""What was seen: every number by where, what and step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normkit.watching.store import MISSING, Sign, Store

Array = Any  # of numpy

WATCH, COLUMNS, SAMPLE, SIGNS, NOTE, END = "watch", "columns", "sample", "signs", "note", "end"
"""The lines of a file: facts once, columns where they change, a row each sample, what is known of signs where rows were
joined, notes, and a last line."""

LOSS, PEAK = "loss", "loss_peak"
"""The mean of the losses since the last sample, and the largest of them."""
DATA, NOISE, BAD = "data", "noise", "first not finite"
"""Of the data that the model is fed; of the gradients of single examples; and the first step at which data, output or
gradient were not finite, 0 if none."""

BEGAN = 0.1  # of the length that a parameter has come to
WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class History:
    """The samples of a training.

    steps: when they were taken. columns: where and what, in the order in which a forward pass comes to them.
    facts: what is known of model and optimizer. notes: what could not be seen, and why.
    """

    def __init__(self, store: Store, facts: dict[str, Any], notes: Sequence[str] = ()):
        self.store, self.facts, self.notes = store, facts, list(notes)
        self.steps, self.columns, self.words = list(store.steps), list(store.columns), list(store.words)
        self.table = store.table()

    def names(self, what: str) -> list[str]:
        """Return where a number was read, in the order of the forward pass."""
        return [where for where, kind in self.columns if kind == what]

    def series(self, where: str, what: str) -> Array:
        """Return a number at every sample: float64, NaN where it was NaN, and where it was not read."""
        place = self.store.columns.get((where, what))
        if place is None:
            return np.full(len(self.steps), math.nan)
        values = self.table[:, place].double().numpy().copy()
        values[self.table[:, place].numpy() == np.float32(MISSING)] = math.nan
        return values

    def was_read(self, where: str, what: str) -> Array:
        """Return at which samples a number was read."""
        place = self.store.columns.get((where, what))
        if place is None:
            return np.zeros(len(self.steps), bool)
        return self.table[:, place].numpy() != np.float32(MISSING)

    def read(self, where: str, what: str) -> Array:
        """Return a number at the samples where it was read, NaN where it was NaN."""
        return self.series(where, what)[self.was_read(where, what)]

    def of(self, what: str) -> dict[str, Array]:
        """Return a number at every sample, by where it was read."""
        return {where: self.series(where, what) for where in self.names(what)}

    def late(self, what: str) -> dict[str, float]:
        """Return what a number has come to: the median of the last quarter of its samples."""
        return {where: late_median(series) for where, series in self.of(what).items()}

    def since(self, where: str, sign: Sign) -> int | None:
        """Return the first step from which on a sign was always seen, by all samples where the store looked for it."""
        if sign in self.store.signs:
            return self.store.since(where, sign)
        return self.since_when(where, sign.what, sign.shows)

    def since_when(self, where: str, what: str, ill: Any) -> int | None:
        """Return the first step from which on a number was always so, by the samples that are kept."""
        series = self.series(where, what)
        first = None
        for step, value in zip(self.steps, series, strict=True):
            if math.isnan(value):
                continue
            first = (first or step) if ill(value) else None
        return first

    def first_bad(self, place: str) -> int:
        """Return the first step at which data, output or gradient held NaN or infinity, or 0."""
        series = self.series(BAD, f"bad_{place}")
        return int(np.nanmax(series)) if (~np.isnan(series)).any() else 0

    def rates(self, name: str) -> Array:
        """Return the learning rate of a parameter at every sample."""
        return self.series(f"group {self.facts['group_of'].get(name, 0)}", "lr")

    def began_near_zero(self, name: str) -> bool:
        """Whether a parameter began at a tenth of its length or less, as the second matrix of an adapter does."""
        series = self.series(name, "weight")
        sizes = series[np.isfinite(series)]
        return len(sizes) > 0 and bool(sizes[0] <= BEGAN * sizes[-1])


def late_median(series: Array) -> float:
    """Return the median of the last quarter of the samples that there are."""
    samples = series[~np.isnan(series)]
    return float(np.median(samples[-max(1, len(samples) // 4) :])) if len(samples) else math.nan


def json_row(row: Tensor | Sequence[float]) -> list[Any]:
    """Write numbers so that JSON has words for all of them; what is missing is None.

    >>> json_row(torch.tensor([1.5, float("nan"), MISSING]))
    [1.5, 'nan', None]
    """
    values = row.tolist() if isinstance(row, Tensor) else row
    return [None if v <= MISSING else float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in values]


def numbers(row: Sequence[Any]) -> Tensor:
    """Read what :func:`json_row` wrote."""
    values = [MISSING if v is None else WORDS[v] if isinstance(v, str) else v for v in row]
    return torch.tensor(values, dtype=torch.float32, device="cpu")
