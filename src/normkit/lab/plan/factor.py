"""Two choices crossed: whether the gap between two names of the second depends on the name of the first.

Is derf's gap to layernorm another with muon than with adamw? With either optimizer each seed has a gap; where the
optimizer does not matter, it does not matter either which of a seed's two gaps belongs to which. The test exchanges the
two of each seed or leaves them, in every way there is, and counts how often their means come to lie as far apart as
they did (a permutation test). With so few seeds that it could find nothing, all gaps are dealt to the two sides; that
finds less where the gaps of a seed are alike. p is corrected for the number of interactions by Holm's method.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from normkit.lab.plan import findings
from normkit.lab.plan.findings import ENOUGH, LEVEL, Interval, Values
from normkit.lab.plan.settings import spell
from normkit.lab.plan.variants import SLOTS, Variant

EXACT = 50_000  # ways up to which all are counted
DRAWS = 20_000  # that are drawn where there are more
GROWS, SHRINKS, TURNS = "grows", "shrinks", "turns"
SAME, FEW = findings.SAME, findings.FEW

Cells = dict[tuple[str, str], list[str]]  # variants by the names of both choices


class Interaction(NamedTuple):
    """How the gap between two names of the second choice changes with the first.

    first: the names of the first choice, the baseline's and another; second: those of the second.
    before, after: the gap, ``second[1]`` minus ``second[0]``, with either name of the first.
    change: the one gap minus the other, seed by seed.
    word: grows, shrinks, turns (its sign), no difference found, too few seeds to tell.
    p: corrected for the number of interactions; NaN with too few seeds.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    before: Interval
    after: Interval
    change: Interval
    word: str
    p: float


def require(factor: Sequence[str], variants: Sequence[Variant]) -> None:
    """Refuse a factor that is not two choices, or whose names are not crossed."""
    name = spell("factor")
    if len(factor) != 2:
        raise ValueError(f"{name} takes two choices, such as optimizer norm, not {' '.join(factor)}")
    for slot in factor:
        if slot not in SLOTS:
            raise ValueError(f"{name} {slot!r} is no choice of a variant; choices are {', '.join(SLOTS)}")
    if factor[0] == factor[1]:
        raise ValueError(f"{name} names {factor[0]} twice; two different choices are crossed")
    own = [variant for variant in variants if variant.start == "own"]
    levels = [list(dict.fromkeys(getattr(variant, slot) for variant in own)) for slot in factor]
    for slot, names in zip(factor, levels, strict=True):
        if len(names) < 2:
            raise ValueError(f"{name} {slot}: all variants have {names[0]}; give several names to {spell(slot)}")
    grid = cells(factor, variants)
    rests = {key: {_rest(v, factor) for v in own if v.name in names} for key, names in grid.items()}
    most = set.union(*rests.values())
    for key in itertools.product(*levels):
        if rests.get(key) != most:
            raise ValueError(
                f"{name} needs every {factor[0]} with every {factor[1]}, and there is no variant with {factor[0]} "
                f"{key[0]} and {factor[1]} {key[1]} that has all else in common with the others"
            )


def _rest(variant: Variant, factor: Sequence[str]) -> Variant:
    blank: dict[str, Any] = {"name": "", **dict.fromkeys(factor, "")}
    return replace(variant, **blank)


def cells(factor: Sequence[str], variants: Sequence[Variant]) -> Cells:
    """Return the variants by their names of both choices; twins are none."""
    grid: Cells = {}
    for variant in variants:
        if variant.start == "own":
            grid.setdefault((getattr(variant, factor[0]), getattr(variant, factor[1])), []).append(variant.name)
    return grid


def means(cells: Cells, values: Values) -> dict[tuple[str, str], dict[int, float]]:
    """Return a number by seed for each cell, the mean of its variants, where all of them have one."""
    averages = {}
    for key, names in cells.items():
        sides = [values.get(name, {}) for name in names]
        seeds = set.intersection(*(set(side) for side in sides))
        averages[key] = {seed: float(np.mean([side[seed] for side in sides])) for seed in sorted(seeds)}
    return averages


def interactions(cells: Mapping[tuple[str, str], Mapping[int, float]], reference: tuple[str, str]) -> list[Interaction]:
    """Test each other name of the one choice with each other name of the other, against the reference.

    ``cells`` hold the numbers of each cell by seed. Less than :data:`ENOUGH` seeds that all four cells have are too
    few.
    """
    firsts, seconds = (list(dict.fromkeys(key[side] for key in cells)) for side in (0, 1))
    pairs = [
        (first, second) for first in firsts for second in seconds if first != reference[0] and second != reference[1]
    ]
    gaps = [_gaps(cells, reference, *pair) for pair in pairs]
    ps = [permutation_test(*both, len(pairs)) for both in gaps]
    tested = [p for p in ps if not math.isnan(p)]
    corrected = iter(findings.holm(tested))
    results = []
    for pair, (before, after), p in zip(pairs, gaps, ps, strict=True):
        own = math.nan if math.isnan(p) else next(corrected)
        one, other, change = (findings.interval(values) for values in (before, after, after - before))
        word = _word(one.mean, other.mean, own)
        results.append(Interaction((reference[0], pair[0]), (reference[1], pair[1]), one, other, change, word, own))
    return results


def _gaps(
    cells: Mapping[tuple[str, str], Mapping[int, float]], reference: tuple[str, str], first: str, second: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gaps by seed with the first choice as in the reference, and as another."""
    keys = [(one, other) for one in (reference[0], first) for other in (reference[1], second)]
    seeds = sorted(set.intersection(*(set(cells.get(key, {})) for key in keys)))
    sides = [{seed: cells.get(key, {})[seed] for seed in seeds} for key in keys]
    return findings.differences(sides[1], sides[0]), findings.differences(sides[3], sides[2])


def _word(before: float, after: float, p: float) -> str:
    if math.isnan(p):
        return FEW
    if p > LEVEL:
        return SAME
    if before * after < 0:
        return TURNS
    return GROWS if abs(after) > abs(before) else SHRINKS


def permutation_test(before: np.ndarray, after: np.ndarray, tests: int = 1) -> float:
    """Return how often exchanging numbers between two sides at random parts their means as far as they are.

    They are exchanged seed by seed where ``tests`` of that could be found among so many seeds, else all are dealt.

    >>> before, after = np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8]), np.array([2.0, 2.1, 1.9, 2.2, 2.1, 1.9])
    >>> permutation_test(before, after) == 2 / 2**6, permutation_test(before[:4], after[:4]) == 2 / 70
    (True, True)
    """
    size = before.size
    if size < ENOUGH:
        return math.nan
    both = np.concatenate([before, after])
    apart = _sign_flips(after - before) if size >= fewest(tests, paired=True) else _splits(both)
    rounding = 1e-9 * np.abs(both).sum()  # which must not lose a way that is as far
    return float(np.mean(apart >= abs(after.sum() - before.sum()) - rounding))


def fewest(tests: int, paired: bool = False) -> int:
    """Return how many seeds so many interactions need, for the clearest of them to be found.

    >>> fewest(1), fewest(4), fewest(1, paired=True), fewest(4, paired=True)
    (4, 5, 6, 8)
    """
    return next(n for n in itertools.count(ENOUGH) if 2 * tests / _ways(n, paired) <= LEVEL)


def _ways(size: int, paired: bool) -> int:
    return 2**size if paired else math.comb(2 * size, size)


def _sign_flips(change: np.ndarray) -> np.ndarray:
    """Return how far the sums lie apart with any of the pairs exchanged."""
    if _ways(change.size, True) <= EXACT:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=change.size)))
    else:
        signs = np.random.default_rng(0).choice((1.0, -1.0), (DRAWS, change.size))
        signs[0] = 1.0  # what was seen is one of the ways
    return np.abs(signs @ change)


def _splits(both: np.ndarray) -> np.ndarray:
    """Return how far the sums lie apart with all numbers dealt to two sides."""
    deals = np.array(list(itertools.combinations(range(both.size), both.size // 2)))
    return np.abs(both.sum() - 2 * both[deals].sum(axis=1))
