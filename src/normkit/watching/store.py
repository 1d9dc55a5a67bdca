"""Samples, a row each: neighbours are joined as they grow old, so that a run of any length takes no more room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Column = tuple[str, str]  # where, what

MEAN, LARGEST, LEAST, BESIDE = "mean", "largest", "least", "beside"
"""How two readings of a number become one: ``beside`` goes with the number before it, as a channel with its value."""


EARLY = 50  # steps at the beginning that are known no more finely than the fiftieth itself
LATE = 4  # the last of so many parts of the rows stand as they were; a run's last three quarters are kept evenly


class Sign(NamedTuple):
    """A number that lies beyond a bound: what is read, the bound, and whether being above it or below it is meant."""

    what: str
    bound: float
    above: bool = True

    def shows(self, value: float) -> bool:
        """Whether a number is such a sign.

        >>> Sign("dead", 0.3).shows(0.5), Sign("update", 1e-7, above=False).shows(0.5)
        (True, False)
        >>> Sign("dead", 0.5).shows(0.5), Sign("update", 0.5, above=False).shows(0.5)
        (False, False)
        """
        return value > self.bound if self.above else value < self.bound


NOT_FINITE = Sign("not finite", 0.0)
"""Of a whole row: its first one is kept as it was, for a rule that names the place."""


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


def join(old: Tensor, new: Tensor, ways: Ways, count: int = 2) -> Tensor:
    """Join a row of ``count`` - 1 readings with one more; what is not a number stays so, and what is missing gives way.

    >>> ways = Ways.of([MEAN, LARGEST, BESIDE])
    >>> join(torch.tensor([1.0, 5.0, 7.0]), torch.tensor([3.0, 4.0, 8.0]), ways)
    tensor([2., 5., 7.])
    """
    better = (new * ways.sign > old * ways.sign) | new.isnan()
    better = better.gather(0, ways.leader)
    return torch.where(ways.means, old + (new - old) / count, torch.where(better, new, old))


class Store:
    """Rows of numbers by step, at most ``keep``.

    The first row, the newest quarter and each row in which one of the ``signs`` was first seen stand as they were. When
    there is no more room, those neighbours are joined that lie closest together for their place in the run: distances
    grow with the step over its first quarter, and are even from there on.

    Since which step a sign has been seen without a break is known from all samples, also from those that were joined.

    >>> store = Store(keep=8)
    >>> for step in range(1, 101): store.add(step, [("a", "rms")], [MEAN], torch.tensor([float(step)]))
    >>> len(store.steps) <= 8, store.steps[0], store.steps[-2:]
    (True, 1, [99, 100])
    """

    def __init__(self, keep: int = 256, signs: Iterable[Sign] = ()):
        self.keep, self.signs = keep, tuple(signs)
        # a step a sign and column; 0: not seen now
        self.onsets = torch.zeros(len(self.signs), 0, dtype=torch.long, device="cpu")
        self.first_seen: dict[Sign, int] = {}
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
        row = _missing(len(self.columns))
        row[[self.columns[column] for column in columns]] = values
        self.steps.append(step)
        self.rows.append(row)
        self._look_for_signs(step, row)
        while len(self.rows) > self.keep:
            self._join_two()

    def before_last(self) -> Store:
        """Return what there was before the last row was added."""
        store = Store(self.keep, self.signs)
        store.columns, store.words = dict(self.columns), list(self.words)
        store.onsets, store.first_seen = self.onsets.clone(), dict(self.first_seen)
        store.steps, store.rows = self.steps[:-1], self.rows[:-1]
        return store

    def since(self, where: str, sign: Sign) -> int | None:
        """Return the step from which on a sign was seen at every sample, or None; only of the store's own signs."""
        place = self.columns.get((where, sign.what))
        return None if place is None else int(self.onsets[self.signs.index(sign), place]) or None

    def known_signs(self) -> dict[str, list[Any]]:
        """Return what is known of signs beyond the rows, as plain values."""
        pairs = [(number, place) for number, place in self.onsets.nonzero().tolist()]
        names = list(self.columns)
        since = [[*self.signs[number], names[place][0], int(self.onsets[number, place])] for number, place in pairs]
        return {"since": since, "first": [[*sign, step] for sign, step in self.first_seen.items()]}

    def remember_signs(self, known: dict[str, list[Any]]) -> None:
        """Take what :meth:`known_signs` returned; a sign that no rule has any more is forgotten."""
        for *sign, step in known["first"]:
            self.first_seen[Sign(*sign)] = step
        for *sign, where, step in known["since"]:
            place = self.columns.get((where, sign[0]))
            if place is not None and Sign(*sign) in self.signs:
                self.onsets[self.signs.index(Sign(*sign)), place] = step

    def _look_for_signs(self, step: int, row: Tensor) -> None:
        """Note where a sign begins or ends; a number that is NaN or was not read changes nothing."""
        new = len(row) - self.onsets.shape[1]
        if new:
            self.onsets = torch.nn.functional.pad(self.onsets, (0, new))
            names = [what for _, what in self.columns]
            self.meant = torch.tensor(
                [[sign.what == what for what in names] for sign in self.signs], dtype=torch.bool, device="cpu"
            )
        if not row.isfinite().all():
            self.first_seen.setdefault(NOT_FINITE, step)
        if not self.signs:
            return
        bounds = torch.tensor([sign.bound for sign in self.signs], dtype=torch.float32, device="cpu")[:, None]
        above = torch.tensor([sign.above for sign in self.signs], device="cpu")[:, None]
        signs = self.meant & torch.where(above, row > bounds, row < bounds) & (row != MISSING)
        ended = (row != MISSING) & ~row.isnan() & ~signs
        self.onsets = torch.where(signs & (self.onsets == 0), step, self.onsets.masked_fill(ended, 0))
        for number in signs.any(1).nonzero().flatten().tolist():
            self.first_seen.setdefault(self.signs[number], step)

    def _join_two(self) -> None:
        """Join the two neighbours that lie closest together for their place."""
        kept = {1, *self.first_seen.values(), self.steps[0]}
        places = range(1, len(self.rows) - max(self.keep // LATE, 1) - 1)
        free = [at for at in places if self.steps[at] not in kept and self.steps[at + 1] not in kept]
        at = min(free or places, key=self._distance)
        joint = _together(self._whole(at), self._whole(at + 1), Ways.of(self.words))
        self.steps[at : at + 2] = [self.steps[at + 1]]
        self.rows[at : at + 2] = [joint]

    def _distance(self, at: int) -> float:
        """How far the row behind the next one would lie from the one before, for its place in the run."""
        here = self.steps[at + 1]
        return (here - self.steps[at - 1]) / min(max(here, EARLY), max(self.steps[-1] / LATE, 1))

    def _whole(self, place: int) -> Tensor:
        row = self.rows[place]
        return torch.cat([row, _missing(len(self.columns) - len(row))])

    def table(self) -> Tensor:
        """Return all rows, (samples, columns); what is missing is :data:`MISSING`."""
        rows = [self._whole(place) for place in range(len(self.rows))]
        return torch.stack(rows) if rows else torch.zeros(0, len(self.columns))


MISSING = -3.0e38
"""Stands where a column has no reading, since NaN is one: a finding of its own."""


def _missing(count: int) -> Tensor:
    return torch.full((count,), MISSING, dtype=torch.float32, device="cpu")


def _together(old: Tensor, new: Tensor, ways: Ways) -> Tensor:
    values = join(old, new, ways)
    values = torch.where(new == MISSING, old, values)
    return torch.where(old == MISSING, new, values)
