"""Along a ladder: whether the gap to the baseline closes, grows or stays, by what all seeds say.

Each seed has a line of its own, its gap against the logarithm of the rung; a trend is a paired t-test over the slopes
of these lines, corrected for the number of variants by Holm's method. "Stays" is two such tests of what the whole
ladder changes, one on either side of a margin.

    >>> base = {1: 2.0, 2: 2.1, 3: 1.9, 4: 2.0}
    >>> def at(gap):
    ...     return {"a": base, "b": {seed: loss + gap + seed / 1000 for seed, loss in base.items()}}
    >>> trend = trends({1: at(0.4), 2: at(0.3), 4: at(0.2)}, "a")["b"]
    >>> trend.word, round(trend.ahead[8].mean, 3)
    ('closing', 0.103)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from normkit.lab.plan import findings, ladder
from normkit.lab.plan.findings import ENOUGH, LEVEL, ROUNDING, Interval, Values
from normkit.lab.plan.settings import Settings

CLOSING, GROWING, STAYS, UNKNOWN = "closing", "growing", "stays", "cannot tell"
UNMEASURED = Interval(math.nan, math.nan, 0)

Gaps = Mapping[float, Mapping[int, float]]  # by rung and seed


class Forecast(NamedTuple):
    """What lower rungs predicted of a rung, the mean gap and the interval it would be measured in, and what it is."""

    rung: float
    predicted: Interval
    measured: Interval

    @property
    def is_right(self) -> bool:
        """Whether the mean that was measured lies within the interval."""
        return abs(self.measured.mean - self.predicted.mean) <= self.predicted.half


class Trend(NamedTuple):
    """How a variant's gap to the baseline develops along a ladder.

    word: closing, growing, stays, cannot tell.
    gaps: variant minus baseline by rung, of the seeds that each rung has.
    slope: what a doubling of the rung adds to the gap, over the seeds that all rungs have.
    ends: the gap on the mean line, at the lowest rung and at the highest, with intervals as if predicted.
    p: how often chance alone gives such a slope, corrected for variants; NaN with too few seeds or rungs.
    equal: how often a change as large as the margin would look as small as this one; corrected too.
    needed: how many seeds would decide, as in ``findings.Finding``.
    ahead: what the line predicts of the next two rungs, with the interval of what would be measured there.
    forecasts: what the rungs before predicted of those that were trained after, or above, them.
    """

    word: str
    gaps: dict[float, Interval]
    slope: Interval
    ends: tuple[Interval, Interval] = (UNMEASURED, UNMEASURED)
    p: float = math.nan
    equal: float = math.nan
    needed: float = math.nan
    ahead: Mapping[float, Interval] = {}
    forecasts: Sequence[Forecast] = ()


class Lines(NamedTuple):
    """A line for each seed that all rungs have: its slope by doubling and its value at rung 1; and their noise."""

    slopes: np.ndarray
    starts: np.ndarray
    noise: float

    def at(self, rung: float) -> np.ndarray:
        """Return the gap on each seed's line."""
        return self.starts + self.slopes * math.log2(rung)


def trends(
    values: Mapping[float, Values],
    baseline: str,
    share: float = Settings.margin,
    relative: bool = False,
    rounds: Sequence[Sequence[float]] = (),
) -> dict[str, Trend]:
    """Judge every variant against the baseline; ``values`` holds, for each rung, a variant's numbers by seed.

    A variant or rung without numbers, as where seeds failed, is left out. Only variants with :data:`ENOUGH` seeds on
    :data:`ladder.FEWEST` rungs are tested.

    share: the margin, as a share of the baseline's mean on the highest rung; relative: whether gaps are such shares,
        too. Shares rung by rung would grow where a gap stays and the baseline's loss falls.
    rounds: the ladders that there were before this one, the earliest first, whose predictions are then judged.
    """
    names = dict.fromkeys(name for rung in values.values() for name in rung if name != baseline)
    level = next((_mean(of[baseline]) for _, of in sorted(values.items(), reverse=True) if of.get(baseline)), math.nan)
    unit = abs(level) if relative and level else 1.0
    gaps = {name: gaps_of(values, name, baseline, unit) for name in names}
    margin = share * abs(level) / unit
    lines = {name: line for name in names if (line := fit(gaps[name])) is not None}
    changes = {name: line.slopes * _octaves(_sound(gaps[name])) for name, line in lines.items()}
    sides = [(dict(enumerate(change)), dict.fromkeys(range(len(change)), 0.0)) for change in changes.values()]
    ps = dict(zip(lines, findings.holm(findings.compare_pairs(*both)[1] for both in sides), strict=True))
    equal = dict(zip(lines, findings.holm(findings.equivalence(*both, margin) for both in sides), strict=True))
    judged = {}
    for name in names:
        intervals = {rung: findings.interval(by_seed.values()) for rung, by_seed in gaps[name].items()}
        if name not in lines:
            judged[name] = Trend(UNKNOWN, intervals, UNMEASURED)
            continue
        line, climbed = lines[name], sorted(_sound(gaps[name]))
        ends = forecast(line, climbed[0]), forecast(line, climbed[-1])
        judged[name] = Trend(
            _word((ends[0].mean, ends[1].mean), ps[name], equal[name]),
            intervals,
            findings.interval(line.slopes),
            ends,
            ps[name],
            equal[name],
            findings.seeds_needed(changes[name], margin, LEVEL / len(lines)),
            {rung: forecast(line, rung) for rung in ladder.beyond(climbed)},
            _forecasts(gaps[name], rounds),
        )
    return judged


def _word(ends: tuple[float, float], p: float, equal: float) -> str:
    if p <= LEVEL:
        return CLOSING if abs(ends[1]) < abs(ends[0]) else GROWING
    return STAYS if equal <= LEVEL else UNKNOWN


def _mean(values: Mapping[int, float]) -> float:
    return findings.interval(values.values()).mean


def gaps_of(values: Mapping[float, Values], name: str, baseline: str, unit: float) -> dict[float, dict[int, float]]:
    """Return variant minus baseline by rung and seed, in a unit."""
    by_rung: dict[float, dict[int, float]] = {}
    for rung, of in sorted(values.items()):
        if not of.get(name) or not of.get(baseline):
            continue
        seeds = sorted(of[name].keys() & of[baseline].keys())
        gaps = findings.differences(of[name], of[baseline]) / unit
        by_rung |= {rung: dict(zip(seeds, gaps.tolist(), strict=True))} if seeds else {}
    return by_rung


def _sound(gaps: Gaps) -> dict[float, Mapping[int, float]]:
    """Return the rungs that have enough seeds."""
    return {rung: by_seed for rung, by_seed in gaps.items() if len(by_seed) >= ENOUGH}


def _octaves(rungs: Mapping[float, object]) -> float:
    return math.log2(max(rungs) / min(rungs))


def fit(gaps: Gaps) -> Lines | None:
    """Fit a line for each seed by least squares; None where rungs or seeds in common are too few."""
    rungs = sorted(_sound(gaps))
    seeds = sorted(set.intersection(*(set(gaps[rung]) for rung in rungs))) if rungs else []
    if len(rungs) < ladder.FEWEST or len(seeds) < ENOUGH:
        return None
    table = np.array([[gaps[rung][seed] for seed in seeds] for rung in rungs])
    slopes, starts = np.polyfit(np.log2(rungs), table, 1)
    slopes = np.where(np.abs(slopes) <= ROUNDING * np.abs(table).max(), 0.0, slopes)
    return Lines(slopes, starts, float(table.var(axis=1, ddof=1).mean()))


def forecast(lines: Lines, rung: float) -> Interval:
    """Return the mean gap at another rung, and the interval within which as many seeds would measure it.

    Its width comes from how the lines differ there, and from how gaps differ between seeds on the rungs that there are.
    """
    from scipy.special import stdtrit

    gaps = lines.at(rung)
    error = math.sqrt((float(gaps.var(ddof=1)) + lines.noise) / gaps.size)
    return Interval(float(gaps.mean()), float(stdtrit(gaps.size - 1, 1 - LEVEL / 2)) * error, gaps.size)


def _forecasts(gaps: Gaps, rounds: Sequence[Sequence[float]]) -> list[Forecast]:
    """Return what was predicted of each rung by those below it that were there before it was trained."""
    sound, forecasts = _sound(gaps), []
    for rung in sound:
        before = [earlier for earlier in rounds if rung not in earlier]
        known = {r: sound[r] for r in sound if r < rung and (not before or r in before[-1])}
        if (lines := fit(known)) is not None:
            forecasts.append(Forecast(rung, forecast(lines, rung), findings.interval(sound[rung].values())))
    return forecasts
