"""Evaluation: how well mentions were brought to their entries, with intervals, and what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from normkit import check
from normkit.columns import number_of
from normkit.text import frames
from normkit.text.match import Answer
from normkit.text.measures._ratios import f1, share

Gold = str | Sequence[str] | None
ROUNDS, LEVEL = 1000, 0.95
KS = (1, 5, 10)
NIL, RANKING = ("nil_",), ("accuracy@", "mrr")  # what measures begin with


@dataclass(frozen=True)
class Mistake:
    """A mention that was not taken for what it means; None stands for no entry."""

    text: str
    gold: tuple[str, ...]
    said: str | None
    score: float


@dataclass(frozen=True)
class Evaluation(Mapping[str, float]):
    """Measures by name, with their intervals, and the mistakes.

    accuracy@k and mrr are of the ranking, over mentions that have an entry, before it is decided whether to take the
    best; accuracy, over all mentions, and nil_precision, nil_recall and nil_f1, of saying "none", are after that.
    The ranking's are left out where no mention has an entry, those of "none" where every one has.
    Intervals are of 95 %: of a thousand draws of as many mentions, with replacement.
    """

    measures: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    mistakes: tuple[Mistake, ...] = ()
    mentions: int = 0
    unlinkable: int = 0
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> float:
        if name not in self.measures:
            why = self._note()
            raise KeyError(f"{name}; there are {', '.join(self.measures)}{why and f': {why}'}")
        return self.measures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    def confusions(self, top: int = 10) -> list[tuple[str | None, str | None, int]]:
        """Return (what was meant, what was said, how often), the most frequent first; None is no entry."""
        counts = Counter((one.gold[0] if one.gold else None, one.said) for one in self.mistakes)
        return [(gold, prediction, number) for (gold, prediction), number in counts.most_common(top)]

    def __str__(self) -> str:
        lines = [f"{number_of(self.mentions, 'mention')}, {self.unlinkable} of them without an entry"]
        for name, value in self.items():
            low, high = self.intervals[name]
            lines.append(f"  {name:<14} {value:.3f}  ({low:.3f} to {high:.3f})")
        return "\n".join([*lines, *filter(None, [self._note()]), *self.notes])

    def _note(self) -> str:
        if not self.unlinkable:
            return "every mention has an entry, so nothing is measured of saying none"
        none = self.unlinkable == self.mentions
        return "no mention has an entry, so nothing is measured of the ranking" if none else ""


def evaluate(
    matches: Sequence[Answer], gold: Sequence[Gold], k: Sequence[int] = KS, seed: int = 0, notes: Sequence[str] = ()
) -> Evaluation:
    """Hold matches against what was meant: an id, several of which each is right, or None."""
    if len(matches) != len(gold):
        raise ValueError(f"gold must be as long as the mentions, {len(matches)}, not {len(gold)}")
    for one in k:
        check.size("evaluate", "k", one)
    meant = [as_ids(one) for one in gold]
    ranks = _ranks(matches, meant)
    unlinkable = int(ranks["none"].sum())
    nothing = NIL if not unlinkable else RANKING if unlinkable == len(matches) else ()
    whole = _measures(ranks, np.arange(len(matches)), k)
    own = {name: value for name, value in whole.items() if not name.startswith(nothing)}
    generator = np.random.default_rng(seed)
    drawn = [_measures(ranks, generator.integers(0, len(matches), len(matches)), k) for _ in range(ROUNDS)]
    ends = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
    intervals = {name: tuple(np.quantile([one[name] for one in drawn], ends).tolist()) for name in own}
    mistakes = tuple(
        Mistake(match.text, ids, match.id, match.score)
        for match, ids in zip(matches, meant, strict=True)
        if (match.id not in ids if ids else match.id is not None)
    )
    return Evaluation(own, intervals, mistakes, len(gold), unlinkable, tuple(notes))


def as_ids(gold: Any) -> tuple[str, ...]:
    """Return the right ids, numbers as a vocabulary has them; of None and what is missing in a data frame, none."""
    if frames.is_missing(gold):
        return ()
    several = list(gold) if isinstance(gold, Sequence | np.ndarray) and not isinstance(gold, str | bytes) else [gold]
    if all(map(_is_id, several)):
        return tuple(frames.as_text("gold", one) for one in several)
    raise TypeError(f"gold must hold ids, several of them, or None, not {gold!r}")


def _is_id(value: Any) -> bool:
    """Whether a value is text or a whole number, which one empty cell in a column makes a float."""
    whole = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, str) or (whole and not isinstance(value, bool))


def _ranks(matches: Sequence[Answer], meant: Sequence[tuple[str, ...]]) -> dict[str, np.ndarray]:
    """What the measures are made of: of each mention the rank of the first right one, and what was said."""
    ranks = [
        next((rank for rank, one in enumerate(match.candidates, 1) if one.id in ids), np.inf)
        for match, ids in zip(matches, meant, strict=True)
    ]
    none = np.array([not ids for ids in meant], dtype=bool)
    no_match = np.array([match.id is None for match in matches], dtype=bool)
    right = [match.id in ids if ids else match.id is None for match, ids in zip(matches, meant, strict=True)]
    return {"rank": np.array(ranks, dtype=float), "none": none, "said": no_match, "right": np.array(right, dtype=bool)}


def _measures(ranks_of: Mapping[str, np.ndarray], which: np.ndarray, k: Sequence[int]) -> dict[str, float]:
    none, no_match, right = (ranks_of[name][which] for name in ("none", "said", "right"))
    ranks = ranks_of["rank"][which][~none]
    measures = {f"accuracy@{one}": share(float((ranks <= one).sum()), len(ranks)) for one in k}
    measures["mrr"] = share(float((1 / ranks).sum()), len(ranks))
    both = float((none & no_match).sum())
    precision, recall = share(both, float(no_match.sum())), share(both, float(none.sum()))
    nil = {"nil_precision": precision, "nil_recall": recall, "nil_f1": f1(precision, recall)}
    return {**measures, "accuracy": share(float(right.sum()), len(which)), **nil}
