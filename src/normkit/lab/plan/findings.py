"""What several seeds allow one to say: means, intervals, paired differences from a baseline, and how sure each word is.

A seed fixes the first weights and the order of the batches, so a variant and the baseline are compared seed by seed:
what a lucky seed gives to both cancels. "Better" and "worse" are paired t-tests; "as good as" is two such tests, one on
either side of a margin; up to a p of :data:`LIKELY` a difference is "likely better" or "likely worse"; "no difference
found" is what remains. With many variants one of them would win by chance;
Holm's correction keeps the chance of *any* false word of a kind in a comparison at :data:`LEVEL`.

    >>> baseline = {0: 2.00, 1: 2.10, 2: 1.95, 3: 2.05}
    >>> losses = {"a": baseline, "b": {0: 1.81, 1: 1.90, 2: 1.76, 3: 1.85}, "c": {0: 1.9, 1: 2.2}}
    >>> found = findings(losses, baseline="a")
    >>> {name: finding.word for name, finding in found.items()}
    {'b': 'better', 'c': 'too few seeds to tell'}
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from normkit.lab.plan.settings import Settings

LEVEL = 0.05
LIKELY = 0.2  # up to this p, corrected, a difference that is not decided is called likely
POWER = 0.8  # how often the smallest difference that is stated would have been found
ENOUGH = 3
MANY = 1000  # seeds, beyond which no number of them is named
LOOKS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)  # seeds after which a comparison that goes on until it is decided looks
ROUNDING = 1e-5  # differences up to this share of the loss are float32's rounding, and count as none

BETTER, WORSE, EQUAL = "better", "worse", "as good as"
LIKELY_BETTER, LIKELY_WORSE = "likely better", "likely worse"
SAME, FEW = "no difference found", "too few seeds to tell"
DECIDED = (BETTER, WORSE, EQUAL)
OPEN = (LIKELY_BETTER, LIKELY_WORSE, SAME)

Values = Mapping[str, Mapping[int, float]]  # numbers by variant and seed


class Interval(NamedTuple):
    """A mean over seeds, and how far its confidence interval reaches to either side; NaN where there is too little."""

    mean: float
    half: float
    count: int  # type: ignore[assignment]


class Finding(NamedTuple):
    """How a variant compares with the baseline.

    word: better, worse, as good as, likely better, likely worse, no difference found, or too few seeds to tell.
    difference: variant minus baseline over the seeds that both have, with the interval of this difference by itself.
    p: how often chance alone gives as much, corrected for variants and looks; NaN with too few seeds.
    equal: how often a difference as large as the margin would look as small as this one; corrected too.
    margin: the difference that counts as none.
    least: the smallest difference that would have been found four times in five.
    needed: how many seeds would decide, four times in five, if the difference is the one that was seen: find it, or
        show that it is within the margin. Infinity beyond :data:`MANY`, NaN where there is nothing to go by.
    """

    word: str
    difference: Interval
    p: float
    equal: float = math.nan
    margin: float = math.nan
    least: float = math.nan
    needed: float = math.nan


def interval(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Return the mean and Student's confidence interval at 1 - ``level``.

    >>> mean, half, count = interval([1.0, 2.0, 3.0])
    >>> f"{mean} ± {half:.4f} from {count}"
    '2.0 ± 2.4841 from 3'
    """
    from scipy.special import stdtrit

    sample = np.asarray(list(values), dtype=float)
    if sample.size < 2:
        return Interval(float(sample[0]) if sample.size else math.nan, math.nan, sample.size)
    return Interval(float(sample.mean()), float(stdtrit(sample.size - 1, 1 - level / 2) * _error(sample)), sample.size)


def differences(variant: Mapping[int, float], baseline: Mapping[int, float]) -> np.ndarray:
    """Return variant minus baseline for the seeds that both have; what rounding makes of the same mathematics is 0."""
    seeds = sorted(variant.keys() & baseline.keys())
    level, other = (np.array([side[seed] for seed in seeds], dtype=float) for side in (baseline, variant))
    return np.where(np.abs(other - level) <= ROUNDING * np.abs(level), 0.0, other - level)


def compare_pairs(variant: Mapping[int, float], baseline: Mapping[int, float]) -> tuple[Interval, float]:
    """Compare two variants over the seeds that both have: the mean difference, and the paired t-test's p.

    Differences that are all the same leave no doubt: p is 1 where they are 0, else 0.
    """
    from scipy.special import stdtr

    diffs = differences(variant, baseline)
    if diffs.size < ENOUGH:
        return interval(diffs), math.nan
    if np.all(diffs == diffs[0]):
        return interval(diffs), float(diffs[0] == 0)
    return interval(diffs), float(2 * stdtr(diffs.size - 1, -abs(diffs.mean()) / _error(diffs)))


def equivalence(variant: Mapping[int, float], baseline: Mapping[int, float], margin: float) -> float:
    """Return the p of two one-sided paired t-tests (Schuirmann, 1987): that the difference is beyond the margin.

    >>> one, other = {1: 2.0, 2: 2.1, 3: 1.9}, {1: 2.001, 2: 2.099, 3: 1.9}
    >>> equivalence(one, other, 0.1) < 0.05 < equivalence(one, other, 0.001)
    True
    """
    from scipy.special import stdtr

    diffs = differences(variant, baseline)
    if diffs.size < ENOUGH:
        return math.nan
    if np.all(diffs == diffs[0]):
        return float(abs(diffs[0]) >= margin)
    return float(stdtr(diffs.size - 1, (abs(diffs.mean()) - margin) / _error(diffs)))


def least(samples: np.ndarray, level: float = LEVEL) -> float:
    """Return the smallest mean difference that a test at this level finds in the share :data:`POWER` of all cases.

    From how much the differences vary between seeds, whatever their mean.
    """
    from scipy.special import stdtrit

    if samples.size < ENOUGH:
        return math.nan
    reach = stdtrit(samples.size - 1, 1 - level / 2) + stdtrit(samples.size - 1, POWER)
    return float(reach * _error(samples))


def _error(samples: np.ndarray) -> float:
    return float(samples.std(ddof=1) / math.sqrt(samples.size))


def seeds_needed(samples: np.ndarray, margin: float, level: float = LEVEL) -> float:
    """Estimate how many seeds would decide a difference that is as large, and varies as much, as the one that was seen.

    NaN where none was seen and none counts as none, as with a baseline of 0: nothing could be decided.

    >>> seeds_needed(np.array([-1.0, -0.7, -0.2]), 0.01), seeds_needed(np.array([-1e-3, 1e-3, 2e-4]), 0.01)
    (6.0, 3.0)
    """
    if samples.size < ENOUGH or not (samples.mean() or margin):
        return math.nan
    seeds = np.arange(ENOUGH, MANY + 1)
    error, size = samples.std(ddof=1) / np.sqrt(seeds), abs(samples.mean())
    power = _quantiles(POWER)
    apart = (_quantiles(1 - level / 2) + power) * error <= size
    alike = (_quantiles(1 - level) + power) * error <= margin - size
    enough = seeds[apart | alike]
    return float(enough[0]) if enough.size else math.inf


@functools.lru_cache(maxsize=256)
def _quantiles(share: float) -> np.ndarray:
    """Student's, by the number of seeds; every look and every variant asks for the same few."""
    from scipy.special import stdtrit

    quantiles: np.ndarray = stdtrit(np.arange(ENOUGH, MANY + 1) - 1, share)
    return quantiles


def holm(ps: Iterable[float]) -> list[float]:
    """Correct the p-values of one family of tests, so that each may be read against the level by itself (Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    pvalues = np.asarray(list(ps), dtype=float)
    order = np.argsort(pvalues)
    corrected = np.empty_like(pvalues)
    corrected[order] = np.maximum.accumulate(pvalues[order] * np.arange(pvalues.size, 0, -1))
    return np.minimum(corrected, 1).tolist()


def findings(
    values: Values, baseline: str, share: float = Settings.margin, higher: bool = False, level: float = LEVEL
) -> dict[str, Finding]:
    """Compare every variant with the baseline; ``values`` holds a variant's numbers by seed.

    Only variants with :data:`ENOUGH` seeds in common with the baseline are tested, and count for the correction.

    share: the margin, as a share of the baseline's mean. higher: whether a higher number is better.
    level: what these tests may spend of :data:`LEVEL`, where there are several looks.
    """
    pairs = [(name, baseline) for name in values if name != baseline]
    margin = share * abs(interval(values[baseline].values()).mean)
    return {name: finding for (name, _), finding in _test_family(values, pairs, margin, higher, level).items()}


def _test_family(
    values: Values, pairs: Sequence[tuple[str, str]], margin: float, higher: bool, level: float
) -> dict[tuple[str, str], Finding]:
    """Test some pairs as one family."""
    diffs = {pair: differences(values[pair[0]], values[pair[1]]) for pair in pairs}
    tested = [pair for pair in pairs if diffs[pair].size >= ENOUGH]
    sides = [(values[one], values[other]) for one, other in tested]
    scale = LEVEL / level  # so that every p may be read against the whole level
    ps = [min(1.0, scale * p) for p in holm(compare_pairs(*both)[1] for both in sides)]
    equal = [min(1.0, scale * p) for p in holm(equivalence(*both, margin) for both in sides)]
    verdicts = {pair: Finding(FEW, interval(diffs[pair]), math.nan) for pair in pairs}
    for pair, p, same in zip(tested, ps, equal, strict=True):
        mean = interval(diffs[pair])
        own = level / len(tested)
        smallest, needed = least(diffs[pair], own), seeds_needed(diffs[pair], margin, own)
        verdicts[pair] = Finding(_word(mean.mean, p, same, higher), mean, p, same, margin, smallest, needed)
    return verdicts


def _word(mean: float, p: float, equal: float, higher: bool) -> str:
    if equal <= LEVEL:
        return EQUAL
    if p > LIKELY:
        return SAME
    if p > LEVEL:
        return LIKELY_BETTER if (mean > 0) == higher else LIKELY_WORSE
    return BETTER if (mean > 0) == higher else WORSE


def looks(most: int) -> list[int]:
    """Return after how many seeds to look, if there may be so many at most.

    >>> looks(10), looks(3)
    ([4, 6, 8, 10], [3])
    """
    return [*(look for look in LOOKS if look < most), most]


def judged(
    values: Values,
    baseline: str,
    twins: Collection[str],
    most: int,
    until: bool = False,
    share: float = Settings.margin,
    higher: bool = False,
) -> tuple[dict[str, Finding], dict[str, int]]:
    """Return how every variant compares, and how many seeds each needs, as far as is known so far.

    Twins, which are the baseline from another start, are controls: a family of their own, with the baseline's seeds.
    """
    if baseline not in values:
        return {}, dict.fromkeys(values, looks(most)[0] if until else most)
    others = {name: results for name, results in values.items() if name not in twins}
    controls = {name: results for name, results in values.items() if name in twins or name == baseline}
    control_findings = findings(controls, baseline, share, higher)
    if not until:
        return findings(others, baseline, share, higher) | control_findings, dict.fromkeys(values, most)
    results, needed = until_decided(others, baseline, most, share, higher)
    return results | control_findings, {name: needed.get(name, needed[baseline]) for name in values}


def levels(most: int) -> dict[int, float]:
    """Return the level of the tests at each look: the part of :data:`LEVEL` that its new seeds are of all there may be.

    Looking often gives chance more than one try; all looks together spend no more than the whole level.

    >>> {look: round(level, 4) for look, level in levels(8).items()}
    {4: 0.025, 6: 0.0125, 8: 0.0125}
    """
    ends = looks(most)
    return {look: LEVEL * (look - before) / most for before, look in zip([0, *ends], ends, strict=False)}


def until_decided(
    values: Values, baseline: str, most: int, share: float = Settings.margin, higher: bool = False
) -> tuple[dict[str, Finding], dict[str, int]]:
    """At every look, compare the variants that no earlier look has decided; also return the seeds that each needs now.

    The baseline needs as many seeds as whichever variant needs most. A look waits for all that it compares.
    """
    verdicts = {name: _no_test(values, name, baseline) for name in values if name != baseline}
    needed = dict.fromkeys(values, 0)
    for look, level in levels(most).items():
        going = [name for name, finding in verdicts.items() if finding.word not in DECIDED]
        if going or look == looks(most)[0]:
            needed |= dict.fromkeys([*going, baseline], look)
        so_far = {name: {s: v for s, v in values[name].items() if s <= look} for name in [*going, baseline]}
        if not going or any(len(seeds) < look for seeds in so_far.values()):
            break
        verdicts |= findings(so_far, baseline, share, higher, level)
    return verdicts, needed


def _no_test(values: Values, name: str, baseline: str) -> Finding:
    return Finding(FEW, interval(differences(values[name], values[baseline])), math.nan)


def places(
    values: Values,
    judged: Mapping[str, Finding],
    baseline: str,
    share: float = Settings.margin,
    higher: bool = False,
    level: float = LEVEL,
) -> dict[str, tuple[int, int]]:
    """Return the best and the worst place that each variant may have: only those that differ have places of their own.

    What differs from the baseline the findings say; all other pairs are tested as one family of their own. What is
    better than something is better than all that this is better than.
    """
    margin = share * abs(interval(values[baseline].values()).mean) if baseline in values else math.nan
    pairs = [pair for pair in combinations(values, 2) if baseline not in pair]
    verdicts = {(name, baseline): finding for name, finding in judged.items()}
    verdicts |= _test_family(values, pairs, margin, higher, level)
    above: dict[str, set[str]] = {name: set() for name in values}
    for (one, other), finding in verdicts.items():
        if finding.word in (BETTER, WORSE):
            better, worse = (one, other) if finding.word == BETTER else (other, one)
            above[worse].add(better)
    for middle in values:
        for name in values:
            above[name] |= above[middle] if middle in above[name] else set()
    below = {name: sum(name in better for better in above.values()) for name in values}
    return {name: (1 + len(above[name]), len(values) - below[name]) for name in values}
