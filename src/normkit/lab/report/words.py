"""Numbers of a comparison, written for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from normkit.lab.plan import measures
from normkit.lab.plan.findings import Interval
from normkit.lab.plan.measures import Measure
from normkit.lab.report.ranking import Row
from normkit.lab.training.speed import Ratio

HUGE = 1e5
MOST = 8  # decimals
UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
WIDE = 10.0  # percent; an interval that reaches so far to either side, and over 0, is written with both ends


@dataclass(frozen=True)
class Scale:
    """How a measure's values and differences are written.

    A loss as it is, its differences as shares of the baseline's; an accuracy and its differences in percent; a user's
    own measure as it is.

    level: the baseline's mean; digits: decimals of a value, places: of a difference; bounded: whether differences are
    from ``level`` itself, so that their intervals end where the measure does.
    """

    measure: Measure
    level: float
    digits: int
    places: int
    bounded: bool = True

    @property
    def factor(self) -> float:
        """What a difference is multiplied by."""
        if self.measure.key == measures.LOSS and self.level:
            return 100 / abs(self.level)
        return 100.0 if self.measure.is_share else 1.0

    @property
    def unit(self) -> str:
        """What stands behind a difference: an accuracy's percents are points."""
        return "" if self.factor == 1 else " points" if self.measure.is_share else "%"

    def value(self, interval: Interval) -> str:
        """Write a mean over seeds, and how far its interval reaches."""
        if self.measure.is_share:
            return percent(interval)
        return with_interval(interval, self.digits)

    def difference(self, interval: Interval) -> str:
        """Write a difference from the baseline."""
        return self._with_bounds(interval.mean, self._bounds(interval), "+")

    def change(self, interval: Interval) -> str:
        """Write how much lower or higher than the baseline's something is, without its sign.

        >>> scale = Scale(Measure(), 2.0, 3, 0)
        >>> scale.change(Interval(-0.4, 0.1, 5)), scale.change(Interval(-1.4, 1.6, 3))
        ('20% ± 5', '70% [-10, 100]')
        """
        bounds = self._bounds(interval)
        return self._with_bounds(abs(interval.mean), bounds if interval.mean >= 0 else (-bounds[1], -bounds[0]), "")

    def _bounds(self, interval: Interval) -> tuple[float, float]:
        """Return the ends of an interval, as far as they are possible: no loss falls by more than all of it."""
        mean, low, high = interval.mean, interval.mean - interval.half, interval.mean + interval.half
        if not self.bounded:
            return low, high
        if self.measure.is_share:
            return max(low, min(mean, -self.level)), min(high, max(mean, 1 - self.level))
        possible = self.measure.key == measures.LOSS and self.level > 0
        return (max(low, min(mean, -self.level)) if possible else low), high

    def _with_bounds(self, mean: float, bounds: tuple[float, float], sign: str) -> str:
        """Write a number with ± and how far its interval reaches, or with both ends where that would say too little."""
        text = with_decimals(self.factor * mean, self.places, sign)
        unit = self.unit.replace(" points", "")
        low, high = (self.factor * part for part in bounds)
        if not text or math.isnan(low):
            return f"{text}{unit}" if text else ""
        half = (high - low) / 2
        even = math.isclose(low + half, self.factor * mean, rel_tol=1e-6, abs_tol=1e-9)
        if even and (self.factor == 1 or half < WIDE or half < abs(self.factor * mean)):
            return f"{text}{unit} ± {with_decimals(half, self.places)}"
        return f"{text}{unit} [{with_decimals(low, self.places, sign)}, {with_decimals(high, self.places, sign)}]"

    def size(self, value: float) -> str:
        """Write how large a difference is."""
        return with_decimals(self.factor * abs(value), self.places) + self.unit if math.isfinite(value) else ""

    def share(self, margin: float) -> str:
        """Write a margin, which is a share of the baseline's mean."""
        return f"{100 * margin:g}% of its {self.measure.name}"


def scale_of(rows: Sequence[Row]) -> Scale:
    """Return how the measure of a table is written: with as many decimals as its smallest value needs."""
    level = next((row.measured.mean for row in rows if row.is_baseline), math.nan)
    level = level if math.isfinite(level) else 0.0
    scale = Scale(rows[0].measure, level, decimals(row.measured.mean for row in rows), 2)
    if scale.factor == 1:
        return Scale(scale.measure, level, scale.digits, scale.digits)
    largest = max((scale.factor * abs(row.finding.difference.mean) for row in rows if row.finding), default=0.0)
    return Scale(scale.measure, level, scale.digits, 2 if not largest >= 10 else 1 if largest < 100 else 0)


def percent(interval: Interval) -> str:
    """Write a share; its interval with both ends where it would reach below none or above all.

    >>> percent(Interval(0.912, 0.0133, 3)), percent(Interval(0.55, 0.85, 3)), percent(Interval(math.nan, math.nan, 0))
    ('91.2% ± 1.3', '55.0% [0.0, 100.0]', '')
    >>> percent(Interval(0.25, 0.25, 3))
    '25.0% ± 25.0'
    """
    mean = "" if math.isnan(interval.mean) else f"{interval.mean:.1%}"
    low, high = interval.mean - interval.half, interval.mean + interval.half
    if math.isnan(interval.half) or (low >= 0 and high <= 1):
        return mean if math.isnan(interval.half) else f"{mean} ± {100 * interval.half:.1f}"
    return f"{mean} [{100 * max(low, 0):.1f}, {100 * min(high, 1):.1f}]"


def faster(ratio: Ratio | None, brief: bool = True) -> str:
    """Write how much less or more time than the baseline a step takes.

    >>> faster(Ratio(0.88, 0.85, 0.9, 40, "CPU time")), faster(Ratio(1.05, 0.99, 1.1, 40, "CPU time"), brief=False)
    ('-12% [-15, -10]', '5% [-1, 10] more CPU time a step')
    """
    if ratio is None or math.isnan(ratio.median):
        return ""
    change = [100 * (part - 1) for part in ratio[:3]]
    if brief:
        return f"{change[0]:+.0f}% [{change[1]:+.0f}, {change[2]:+.0f}]"
    low, high = sorted(abs(change[0]) / change[0] * part if change[0] else part for part in change[1:])
    return f"{abs(change[0]):.0f}% [{low:.0f}, {high:.0f}] {'less' if change[0] < 0 else 'more'} {ratio.clock} a step"


def decimals(values: Iterable[float]) -> int:
    """Return how many decimals show the smallest of some losses to four digits.

    >>> decimals([2.31, 12.5]), decimals([0.0123]), decimals([3e-9]), decimals([])
    (3, 5, 12, 3)
    """
    magnitudes = [abs(value) for value in values if math.isfinite(value) and value]
    return max(0, 3 - math.floor(math.log10(min(magnitudes)))) if magnitudes else 3


def with_interval(interval: Interval, digits: int, sign: str = "") -> str:
    """Write a mean and how far its interval reaches."""
    mean = with_decimals(interval.mean, digits, sign)
    return mean if math.isnan(interval.half) else f"{mean} ± {with_decimals(interval.half, digits)}"


def with_decimals(value: float, digits: int, sign: str = "") -> str:
    """Write a number with so many decimals, a huge one or very many with its power of ten, and nothing for NaN.

    >>> with_decimals(2.34567, 3), with_decimals(1234567.8, 3), with_decimals(2.34567e-9, 12)
    ('2.346', '1.23e+06', '2.346e-09')
    """
    if math.isnan(value):
        return ""
    if digits > MOST:
        return f"{value:{sign}.3e}"
    return f"{value:{sign}.{digits}f}" if abs(value) < HUGE else f"{value:{sign}.3g}"


def write_count(value: float | None) -> str:
    """Write a count.

    >>> write_count(12345.6)
    '12,346'
    """
    return "" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Write a duration in seconds."""
    return "" if value is None else f"{value:,.1f}"


def memory(value: float | None) -> str:
    """Write bytes in the unit that suits them.

    >>> memory(1.5 * 2**30), memory(300 * 2**20), memory(1.26 * 2**20), memory(45_300)
    ('1.5 GiB', '300 MiB', '1.3 MiB', '44 KiB')
    """
    if value is None:
        return ""
    size, unit = next((one for one in UNITS if value >= one[0]), UNITS[-1])
    return f"{value / size:.{int(unit == 'GiB' or value < 10 * size)}f} {unit}"


def chance(p: float) -> str:
    """Write a p-value, and nothing for NaN.

    >>> chance(0.0123), chance(1e-5)
    ('0.012', '<0.001')
    """
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.2g}"


def odds(p: float) -> str:
    """Write a p-value as a sentence does.

    >>> odds(0.0123), odds(1e-5)
    ('p = 0.012', 'p < 0.001')
    """
    return f"p = {chance(p)}".replace("= <", "< ")


def join_names(names: Sequence[str]) -> str:
    """Join names as a sentence does.

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
