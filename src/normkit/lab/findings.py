"""What several seeds allow one to say: means, intervals, and paired differences from a baseline.

A seed fixes the first weights and the order of the batches, so a variant and the baseline are compared seed by seed:
what a lucky seed gives to both cancels. With many variants one of them would win by chance; Holm's correction keeps the
chance of *any* false finding in a comparison at :data:`LEVEL`.

    >>> baseline = {0: 2.00, 1: 2.10, 2: 1.95, 3: 2.05}
    >>> losses = {"a": baseline, "b": {0: 1.81, 1: 1.90, 2: 1.76, 3: 1.85}, "c": {0: 1.9, 1: 2.2}}
    >>> found = findings(losses, baseline="a")
    >>> {name: finding.word for name, finding in found.items()}
    {'b': 'better', 'c': 'too few seeds to tell'}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
ENOUGH = 3
ROUNDING = 1e-5  # differences up to this share of the loss are float32's rounding, and count as none

BETTER, WORSE, SAME, FEW = "better", "worse", "no difference found", "too few seeds to tell"


class Interval(NamedTuple):
    """A mean over seeds, and how far its confidence interval reaches to either side; NaN where there is too little."""

    mean: float
    half: float
    count: int  # type: ignore[assignment]


class Finding(NamedTuple):
    """What may be said of a variant against the baseline.

    word: better, worse, no difference found, or too few seeds to tell; a lower number is better.
    difference: variant minus baseline over the seeds that both have, with the interval of this difference by itself.
    p: how often chance alone gives as much, corrected for the number of variants; NaN with too few seeds.
    """

    word: str
    difference: Interval
    p: float


def interval(values: Iterable[float]) -> Interval:
    """Return the mean and Student's confidence interval at 1 - :data:`LEVEL`.

    >>> mean, half, count = interval([1.0, 2.0, 3.0])
    >>> f"{mean} ± {half:.4f} from {count}"
    '2.0 ± 2.4841 from 3'
    """
    from scipy.special import stdtrit

    found = np.asarray(list(values), dtype=float)
    if found.size < 2:
        return Interval(float(found[0]) if found.size else math.nan, math.nan, found.size)
    error = found.std(ddof=1) / math.sqrt(found.size)
    return Interval(float(found.mean()), float(stdtrit(found.size - 1, 1 - LEVEL / 2) * error), found.size)


def paired(variant: Mapping[int, float], baseline: Mapping[int, float]) -> tuple[Interval, float]:
    """Compare two variants over the seeds that both have: the mean difference, and the paired t-test's p.

    Differences that are all the same leave no doubt: p is 1 where they are 0, else 0. What rounding makes of the same
    mathematics, written in two ways, is 0.
    """
    from scipy.stats import ttest_1samp

    seeds = sorted(variant.keys() & baseline.keys())
    level, other = (np.array([side[seed] for seed in seeds]) for side in (baseline, variant))
    differences = np.where(np.abs(other - level) <= ROUNDING * np.abs(level), 0.0, other - level)
    found = interval(differences)
    if found.count < ENOUGH:
        return found, math.nan
    if np.all(differences == differences[0]):
        return found, float(differences[0] == 0)
    return found, float(ttest_1samp(differences, 0).pvalue)


def holm(ps: Iterable[float]) -> list[float]:
    """Correct the p-values of one family of tests, so that each may be read against the level by itself (Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found = np.asarray(list(ps), dtype=float)
    order = np.argsort(found)
    corrected = np.empty_like(found)
    corrected[order] = np.maximum.accumulate(found[order] * np.arange(found.size, 0, -1))
    return np.minimum(corrected, 1).tolist()


def findings(losses: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, Finding]:
    """Compare every variant with the baseline; ``losses`` holds a variant's numbers by seed.

    Only variants with :data:`ENOUGH` seeds in common with the baseline are tested, and count for the correction.
    """
    compared = {name: paired(found, losses[baseline]) for name, found in losses.items() if name != baseline}
    tested = [name for name, (_, p) in compared.items() if not math.isnan(p)]
    corrected = dict(zip(tested, holm(compared[name][1] for name in tested), strict=True))
    return {name: _finding(difference, corrected.get(name)) for name, (difference, _) in compared.items()}


def _finding(difference: Interval, p: float | None) -> Finding:
    if p is None:
        return Finding(FEW, difference, math.nan)
    word = SAME if p > LEVEL else BETTER if difference.mean < 0 else WORSE
    return Finding(word, difference, p)
