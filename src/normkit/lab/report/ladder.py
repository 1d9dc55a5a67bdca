"""What a ladder comes to, in numbers and words: the gap to the baseline on each rung, its trend and what lies ahead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normkit.columns import number_of
from normkit.lab.plan import findings, ladder, measures, trends
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.trends import CLOSING, GROWING, STAYS, UNKNOWN, Trend
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import sound_values
from normkit.lab.report.tables import Column, Line, Section
from normkit.lab.report.words import Scale, chance, join_names, odds

WORDS = (CLOSING, GROWING, STAYS, UNKNOWN)


def trends_of(comparison: Comparison) -> dict[str, Trend]:
    """Return the trend of every variant, nothing where there is no ladder; controls are a family of their own."""
    values = {rung: sound_values(one) for rung, one in comparison.rungs.items()}
    settings, names = comparison.settings, [name for name in comparison.variants if name != comparison.baseline]
    share, by_name = settings.get("margin", Settings.margin), dict[str, Trend]()
    rounds = [one["rungs"] for one in comparison.plan.get("added", []) if "rungs" in one]
    for family in ([n for n in names if n not in comparison.twins], comparison.twins):
        kept = {*family, comparison.baseline}
        sides = {rung: {name: of for name, of in scores.items() if name in kept} for rung, scores in values.items()}
        by_name |= trends.trends(sides, comparison.baseline, share, is_relative(comparison), rounds) if family else {}
    return {name: by_name[name] for name in names if name in by_name} if comparison.rungs else {}


def is_relative(comparison: Comparison) -> bool:
    """Whether gaps are shares of the baseline's measure, as those of a loss are."""
    return measures.of(comparison.settings).key == measures.LOSS


def scale_of(comparison: Comparison, variant_trends: Mapping[str, Trend]) -> Scale:
    """Return how gaps are written."""
    measure = measures.of(comparison.settings)
    means = [abs(gap.mean) for trend in variant_trends.values() for gap in trend.gaps.values()]
    level = 1.0 if is_relative(comparison) else 0.0
    scale = Scale(measure, level, 3, 2)
    largest = scale.factor * max(means, default=0.0)
    places = 3 if scale.factor == 1 else 2 if largest < 10 else 1 if largest < 100 else 0
    return Scale(measure, level, 3, places, bounded=False)


def names_of(comparison: Comparison, rungs: Sequence[float]) -> list[str]:
    """Say what some rungs are."""
    settings = comparison.entire.settings
    return [ladder.name_rung(settings, rung) for rung in rungs]


def section(comparison: Comparison) -> Section | None:
    """Return the table, None where there is no ladder."""
    variant_trends = trends_of(comparison)
    if not variant_trends:
        return None
    scale, rungs = scale_of(comparison, variant_trends), list(comparison.rungs)
    ahead = list(dict.fromkeys(rung for trend in variant_trends.values() for rung in trend.ahead))
    columns = [
        *(
            Column(name, lambda line, rung=rung: _gap(line.of, rung, scale))  # type: ignore[misc]
            for rung, name in zip(rungs, names_of(comparison, rungs), strict=True)
        ),
        Column("trend", lambda line: line.of.word, words=True),
        Column("a doubling adds", lambda line: _difference(scale, line.of.slope)),
        Column("p", lambda line: chance(line.of.p)),
        *(
            Column(f"predicted: {name}", lambda line, rung=rung: _ahead(line.of, rung, scale))  # type: ignore[misc]
            for rung, name in zip(ahead, names_of(comparison, ahead), strict=True)
        ),
    ]
    lines = [Line(name, trend, name) for name, trend in variant_trends.items()]
    return Section(f"Gap to {comparison.baseline} along the ladder", columns, lines)


def _gap(trend: Trend, rung: float, scale: Scale) -> str:
    return _difference(scale, trend.gaps[rung]) if rung in trend.gaps else ""


def _ahead(trend: Trend, rung: float, scale: Scale) -> str:
    return _difference(scale, trend.ahead[rung]) if rung in trend.ahead else ""


def _difference(scale: Scale, interval: findings.Interval) -> str:
    return scale.difference(interval) if math.isfinite(interval.mean) else ""


def _mean(scale: Scale, mean: float) -> str:
    return _difference(scale, findings.Interval(mean, math.nan, 1))


def headline(comparison: Comparison) -> str:
    """Say in a line whose gap closes, grows and stays."""
    variant_trends = {name: trend for name, trend in trends_of(comparison).items() if name not in comparison.twins}
    if not variant_trends:
        return ""
    groups = {word: [name for name, trend in variant_trends.items() if trend.word == word] for word in WORDS}
    parts = [f"{word} for {join_names(names)}" for word, names in groups.items() if names]
    rungs = list(comparison.rungs)
    first, last = names_of(comparison, [rungs[0], rungs[-1]])
    return f"From {first} to {last}, the gap to {comparison.baseline}: {'; '.join(parts)}"


def sentences(comparison: Comparison) -> list[str]:
    """Say of each variant what its gap does, then what was predicted and came."""
    variant_trends = trends_of(comparison)
    scale = scale_of(comparison, variant_trends)
    lines = [_sentence(comparison, name, trend, scale) for name, trend in variant_trends.items()]
    return [*lines, *_check_predictions(comparison, variant_trends, scale)]


def _sentence(comparison: Comparison, name: str, trend: Trend, scale: Scale) -> str:
    gap = f"{'Control: ' * (name in comparison.twins)}{name}'s gap to {comparison.baseline}"
    if math.isnan(trend.p):
        return (
            f"{gap} has no trend yet: {findings.ENOUGH} seeds of both must be finished, and none failed, on "
            f"{ladder.FEWEST} rungs."
        )
    first, last = names_of(comparison, [min(trend.gaps), max(trend.gaps)])
    ends = [_mean(scale, end.mean) for end in trend.ends]
    sure = f"{odds(trend.p)}, {number_of(trend.slope.count, 'seed')}"
    way = f"from {ends[0]} at {first} to {ends[1]} at {last} on its line"
    each = f"{_difference(scale, trend.slope)} with each doubling ({sure})"
    if trend.word in (CLOSING, GROWING):
        turned = ", and its sign has turned" if trend.ends[0].mean * trend.ends[1].mean < 0 else ""
        return f"{gap} is {trend.word}: {way}, {each}{turned}."
    if trend.word == STAYS:
        within = scale.share(comparison.settings.get("margin", Settings.margin))
        return f"{gap} stays, within {within} ({odds(trend.equal)}): {way}."
    return f"{gap}: cannot tell whether it closes or grows, {each}{_enough(trend)}."


def _enough(trend: Trend) -> str:
    if math.isnan(trend.needed):
        return ""
    many = f"more than {findings.MANY}" if math.isinf(trend.needed) else f"about {trend.needed:.0f}"
    return f"; {many} seeds would decide the change that was seen"


def _check_predictions(comparison: Comparison, variant_trends: Mapping[str, Trend], scale: Scale) -> list[str]:
    """Say of every rung that lower ones predicted what came."""
    lines = []
    for rung in comparison.rungs:
        parts = [
            f"{name} {_difference(scale, one.predicted)}, and it is {_mean(scale, one.measured.mean)} "
            f"({'right' if one.is_right else 'wrong'})"
            for name, trend in variant_trends.items()
            for one in trend.forecasts
            if one.rung == rung
        ]
        if parts:
            lines.append(f"Lower rungs predicted for {names_of(comparison, [rung])[0]}: {'; '.join(parts)}.")
    return lines


def reading(comparison: Comparison) -> list[str]:
    """Say how the ladder is to be read."""
    if not comparison.rungs:
        return []
    rungs = names_of(comparison, list(comparison.rungs))
    gap = f"in % of {comparison.baseline}'s on the highest rung" if is_relative(comparison) else "in its own unit"
    return [
        f"On a ladder of {join_names(rungs)} the ranking, the pictures and the time a step are those of {rungs[-1]}; "
        "every rung has a search of the learning rate of its own, where rates are searched for.",
        f"A gap is a variant's {measures.of(comparison.settings).name} minus {comparison.baseline}'s, {gap}. Each seed "
        "has a line, the gap against the logarithm of the rung; closing and growing are t-tests over the slopes of the "
        "seeds, stays are two such tests of what the whole ladder changes, one on either side of the margin, each "
        "corrected for the number of variants (Holm). Rungs on which a seed failed are left out.",
        "Predicted is where the line leads on the next two rungs, with the interval in which as many seeds would "
        f"measure it {1 - findings.LEVEL:.0%} of the times, if it goes on as a line. A rung above others is compared "
        "with what those predicted.",
    ]
