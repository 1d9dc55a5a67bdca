"""Calibration set: which of a model's outputs it is calibrated on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

Item = Mapping[str, Any]
RANK = (
    *("max_margin", "min_margin", "max_metric", "min_metric", "max_gap", "min_gap"),
    *("top_beam", "bottom_beam", "wide_beam", "max_surprise", "min_surprise"),
)
CONTRAST = {
    "min_margin": ("last", "first"),
    "max_margin": ("first", "last"),
    "avg_margin": ("middle", "middle"),
    "easy": ("most likelihood", "least likelihood"),
    "hard": ("least likelihood", "most likelihood"),
    "max_extractive_gap": ("most density", "least density"),
}


@method(
    "calibration-set",
    paper="What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615",
    shape="",
)
class CalibrationSet(Text):
    """Choose, among outputs of a model that a metric has scored, those it is calibrated on.

    For losses that rank outputs or hold good ones against bad. Items are sorted by score, best first, and the chosen
    come in that order.

        max_margin, min_margin      half from each end; from the middle
        max_metric, min_metric      the first; the last
        max_gap, min_gap            of all subsets, the largest or smallest mean gap between neighbouring scores
        top_, bottom_, wide_beam    the smallest beam numbers; the largest; half of each
        max_, min_surprise          of all subsets, where score and beam agree least; most (Spearman)

    An odd number gives one less of margins and wide_beam. Of sets the positives come first. min_margin has the worst
    good and the best bad ones, max_margin the other way, avg_margin the middles. easy has likely good and unlikely bad
    ones, hard the other way, max_extractive_gap dense good and sparse bad ones. Where too few, the last is repeated.

    ``rank_set(items, strategy, n)``: items with id, score and beam; ``contrast_set(items, strategy, positives,
    negatives)``: items with id, sign (``"positive"`` or ``"negative"``), score, likelihood and density. Both give ids.

    What are the Desired Characteristics of Calibration Sets? (Adams et al., 2023), arXiv 2305.07615.

    Differs from the authors' code in: all subsets are looked at, not a random part of them.
    """

    calls = {
        "rank_set": ([{"id": f"s{i}", "score": s, "beam": i} for i, s in enumerate([0.1, 0.9, 0.5])], "max_gap", 2),
        "contrast_set": (
            [
                {"id": "p", "sign": "positive", "score": 0.9, "likelihood": 0.2, "density": 3.0},
                {"id": "n", "sign": "negative", "score": 0.1, "likelihood": 0.4, "density": 1.0},
            ],
            *("easy", 1, 1),
        ),
    }

    def rank_set(self, items: Sequence[Item], strategy: str, n: int) -> list[Any]:
        """Return n ids to be ranked."""
        self._check(items, ("id", "score", "beam"))
        check.choice(self, "strategy", strategy, RANK)
        check.size(self, "n", n)
        ordered = sorted(items, key=lambda item: -item["score"])
        if len(ordered) <= n:
            return [item["id"] for item in ordered]
        return [ordered[place]["id"] for place in _rank(ordered, strategy, n)]

    def contrast_set(self, items: Sequence[Item], strategy: str, positives: int, negatives: int) -> list[Any]:
        """Return the ids of good outputs, then of bad ones."""
        self._check(items, ("id", "sign", "score", "likelihood", "density"))
        check.choice(self, "strategy", strategy, tuple(CONTRAST))
        ordered = sorted(items, key=lambda item: -item["score"])
        ids: list[Any] = []
        counts = {"positive": check.size(self, "positives", positives), "negative": negatives}
        check.size(self, "negatives", negatives)
        for rule, (sign, count) in zip(CONTRAST[strategy], counts.items(), strict=True):
            own = [item for item in ordered if item["sign"] == sign]
            if not own:
                raise ValueError(f"CalibrationSet: items must have one of sign {sign!r}")
            kept = [own[place]["id"] for place in _contrast(own, rule, count)]
            ids += kept + kept[-1:] * (count - len(kept))
        return ids

    def _check(self, items: Sequence[Item], keys: Sequence[str]) -> None:
        for item in items:
            for key in keys:
                if key not in item:
                    raise ValueError(f"CalibrationSet: items must have {', '.join(keys)}; one has no {key}")
                if key not in ("id", "sign"):
                    check.number(self, f"{key} of items", item[key])


def _rank(items: list[Item], strategy: str, n: int) -> list[int]:
    """The places of the chosen, in order."""
    m, h = len(items), n // 2
    beams = sorted(range(m), key=lambda place: items[place]["beam"])
    simple: dict[str, list[int]] = {
        "max_margin": [*range(h), *range(m - h, m)],
        "min_margin": list(range(m // 2 - h, m // 2 + h)),
        "max_metric": list(range(n)),
        "min_metric": list(range(m - n, m)),
        "top_beam": beams[:n],
        "bottom_beam": beams[m - n :],
        "wide_beam": [*beams[:h], *beams[m - h :]],
    }
    if strategy in simple:
        return sorted(simple[strategy])
    is_gap = strategy.endswith("gap")
    subsets = _first_of_ends(m, n) if is_gap else itertools.combinations(range(m), n)
    choose, measure = max if strategy in ("max_gap", "min_surprise") else min, _gap if is_gap else _agreement
    return list(choose(subsets, key=lambda places: measure([items[place] for place in places])))


def _first_of_ends(m: int, n: int) -> Iterator[tuple[int, ...]]:
    """Of all subsets of n with the same ends, which alone make its gap, the first; in the order of subsets."""
    return ((*range(first, first + n - 1), last) for first in range(m - n + 1) for last in range(first + n - 1, m))


def _gap(items: list[Item]) -> float:
    """The mean gap times their number: neighbouring gaps add up to that of the ends."""
    return items[0]["score"] - items[-1]["score"]


def _agreement(items: list[Item]) -> float:
    """Spearman's correlation of score and -beam, 0 where one of them is constant."""
    a, b = (_ranks([item[key] for item in items]) for key in ("score", "beam"))
    spread = float(a @ a) * float(b @ b)
    return -float(a @ b) / spread**0.5 if spread else 0.0


def _ranks(values: list[float]) -> np.ndarray:
    """Ranks about their mean, equals sharing theirs."""
    x = np.asarray(values)
    return ((x[:, None] > x) * 1.0 - (x[:, None] < x)).sum(1) / 2


def _contrast(items: list[Item], rule: str, count: int) -> list[int]:
    m, h = len(items), count // 2
    if " " in rule:
        most, key = rule.split()
        sign = -1 if most == "most" else 1
        return sorted(sorted(range(m), key=lambda place: sign * items[place][key])[:count])
    if rule == "middle" and m > count:
        return list(range(m // 2 - h, m // 2 + h)) or [m // 2]
    return list(range(m))[:count] if rule != "last" else list(range(m))[-count:]
