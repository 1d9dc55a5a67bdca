"""Samples, a row each: older ones are joined two by two, so that a run of any length takes no more room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Column = tuple[str, str]  # where, what

MEAN, LARGEST, LEAST, BESIDE = "mean", "largest", "least", "beside"
"""How two readings of a number become one: ``beside`` goes with the number before it, as a channel with its value."""


class Ways(NamedTuple):
    """How the numbers of a row are joined, number by number."""

    means: Tensor
    sign: Tensor
    leader: Tensor

    @classmethod
    def of(cls, words: Sequence[str], device: torch.device | str = "cpu") -> Ways:
        """Read the words."""
        leaders: list[int] = []
        for place, word in enumerate(words):
            leaders.append(leaders[-1] if word == BESIDE else place)
        own = [words[leader] for leader in leaders]
        return cls(
            torch.tensor([word == MEAN for word in own], device=device),
            torch.tensor([-1.0 if word == LEAST else 1.0 for word in own], device=device),
            torch.tensor(leaders, device=device),
        )


def joined(old: Tensor, new: Tensor, ways: Ways, count: int = 2) -> Tensor:
    """Join a row of ``count`` - 1 readings with one more; what is not a number stays so, and what is missing gives way.

    >>> ways = Ways.of([MEAN, LARGEST, BESIDE])
    >>> joined(torch.tensor([1.0, 5.0, 7.0]), torch.tensor([3.0, 4.0, 8.0]), ways)
    tensor([2., 5., 7.])
    """
    better = (new * ways.sign > old * ways.sign) | new.isnan()
    better = better.gather(0, ways.leader)
    return torch.where(ways.means, old + (new - old) / count, torch.where(better, new, old))


class Store:
    """Rows of numbers by step, at most ``keep``.

    The first row and the newer half stand as they were; of the older ones neighbours are joined when there is no more
    room, again and again, so that what lies far back is told in coarser steps and is not lost.

    >>> store = Store(keep=8)
    >>> for step in range(1, 101): store.add(step, [("a", "rms")], [MEAN], torch.tensor([float(step)]))
    >>> len(store.steps) <= 8, store.steps[0], store.steps[-2:]
    (True, 1, [99, 100])
    """

    def __init__(self, keep: int = 256):
        self.keep = keep
        self.columns: dict[Column, int] = {}
        self.words: list[str] = []
        self.steps: list[int] = []
        self.rows: list[Tensor] = []

    def add(self, step: int, columns: Sequence[Column], words: Sequence[str], values: Tensor) -> None:
        """Add a row; a column that was not there before is missing in the rows before."""
        for column, word in zip(columns, words, strict=True):
            if column not in self.columns:
                self.columns[column] = len(self.columns)
                self.words.append(word)
        row = torch.full((len(self.columns),), MISSING)
        row[[self.columns[column] for column in columns]] = values
        self.steps.append(step)
        self.rows.append(row)
        if len(self.rows) > self.keep:
            self._thin()

    def before_last(self) -> Store:
        """Return what there was before the last row was added."""
        found = Store(self.keep)
        found.columns, found.words = dict(self.columns), list(self.words)
        found.steps, found.rows = self.steps[:-1], self.rows[:-1]
        return found

    def _thin(self) -> None:
        ways = Ways.of(self.words)
        older = len(self.rows) // 2
        steps, rows = [self.steps[0]], [self.rows[0]]
        for place in range(1, older, 2):
            last = min(place + 1, older - 1)
            steps.append(self.steps[last])
            rows.append(_together(self._whole(place), self._whole(last), ways))
        self.steps = steps + self.steps[older:]
        self.rows = rows + self.rows[older:]

    def _whole(self, place: int) -> Tensor:
        row = self.rows[place]
        return torch.cat([row, torch.full((len(self.columns) - len(row),), MISSING)])

    def table(self) -> Tensor:
        """Return all rows, (samples, columns); what is missing is :data:`MISSING`."""
        rows = [self._whole(place) for place in range(len(self.rows))]
        return torch.stack(rows) if rows else torch.zeros(0, len(self.columns))


MISSING = -3.0e38
"""Stands where a column has no reading, since NaN is one: a finding of its own."""


def _together(old: Tensor, new: Tensor, ways: Ways) -> Tensor:
    found = joined(old, new, ways)
    found = torch.where(new == MISSING, old, found)
    return torch.where(old == MISSING, new, found)
