"""What a comparison comes to, in sentences: what to keep, what is as good and cheaper, what is worse, and how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normkit.columns import number_of
from normkit.lab.logs import CRASHED, DIVERGED, DONE
from normkit.lab.plan import findings
from normkit.lab.plan.findings import BETTER, EQUAL, FEW, LIKELY_BETTER, LIKELY_WORSE, OPEN, SAME, WORSE
from normkit.lab.report.ranking import Row
from normkit.lab.report.words import Scale, faster, join_names, odds, scale_of

CHEAPER = 0.02  # a share of time that is worth a change, if the whole interval says that there is some


def headline(rows: Sequence[Row]) -> str:
    """Say in a line what to do."""
    baseline, scale = _baseline(rows), scale_of(rows)
    tested = [row for row in rows if _word(row) not in ("", FEW) and not row.is_twin]
    if _has_failed(baseline):
        return f"{baseline.variant} {baseline.status}: nothing can be compared with it"
    if not baseline.seeds:
        return f"{baseline.variant} has not finished a run: nothing can be compared with it yet"
    if pick := _better(tested, baseline, scale) or _cheaper(tested, baseline):
        return f"Take {pick}"
    if not any(row.finding for row in rows if not row.is_twin):
        return f"{baseline.variant} has nothing to be compared with yet"
    if not tested:
        return f"Too few seeds to tell anything from {baseline.variant}"
    return _likely_better(tested, baseline, scale) or f"Keep {baseline.variant}: {_why_keep(tested)}"


def _better(tested: Sequence[Row], baseline: Row, scale: Scale) -> str:
    """The variants that are better and share the first place, and by how much; nothing where there are none."""
    better = [row for row in tested if _word(row) == BETTER]
    if not better:
        return ""
    level = [row.variant for row in better[1:] if row.place == better[0].place]
    beside = f" or {join_names(level)}" if level else ""
    return f"{better[0].variant}{beside}: {_lead(better[0], baseline, scale)}"


def _likely_better(tested: Sequence[Row], baseline: Row, scale: Scale) -> str:
    """The variant of the least p that is likely better; nothing where there is none."""
    likely = [row for row in tested if _word(row) == LIKELY_BETTER]
    if not likely:
        return ""
    pick = min(likely, key=lambda row: row.finding.p if row.finding else 1.0)
    return f"{pick.variant} is likely better than {baseline.variant}: {_likely(pick, baseline, scale)}"


def _cheaper(tested: Sequence[Row], baseline: Row) -> str:
    """The fastest of the variants that are as good and cheaper; nothing where there are none."""
    cheap = [row for row in tested if _word(row) == EQUAL and is_cheaper(row)]
    if not cheap:
        return ""
    pick = min(cheap, key=lambda row: row.speed.median if row.speed else 1.0)
    return f"{pick.variant}: as good as {baseline.variant}, and {faster(pick.speed, brief=False)}"


def _likely(row: Row, baseline: Row, scale: Scale) -> str:
    assert row.finding is not None
    seeds = number_of(row.finding.difference.count, "seed")
    return f"{_lead(row, baseline, scale)} ({odds(row.finding.p)}, {seeds}){_enough([row])}"


def _enough(rows: Sequence[Row]) -> str:
    """Say how many seeds would decide between the baseline and what is not decided."""
    needed = [row.finding.needed for row in rows if row.finding and not math.isnan(row.finding.needed)]
    if not needed:
        return ""
    what = "the differences that were seen" if len(needed) > 1 else "the difference that was seen"
    many = f"more than {findings.MANY}" if math.isinf(max(needed)) else f"about {max(needed):.0f}"
    return f"; {many} seeds would decide {what}"


def _why_keep(tested: Sequence[Row]) -> str:
    words = {_word(row) for row in tested}
    undecided = [row for row in tested if _word(row) in OPEN]
    if undecided and words <= {WORSE, LIKELY_WORSE}:
        what = "the others are" if len(tested) > 1 else f"{tested[0].variant} is"
        return f"{what} likely worse{_enough(undecided)}"
    if words == {WORSE}:
        return "the others are worse" if len(tested) > 1 else f"{tested[0].variant} is worse"
    if words == {EQUAL}:
        good = "the others are as good, and none is" if len(tested) > 1 else f"{tested[0].variant} is as good, and not"
        return f"{good} surely cheaper"
    return f"nothing was found to be better{_enough(undecided)}"


def is_cheaper(row: Row) -> bool:
    """Whether a step surely takes less time than the baseline's, by as much as is worth a change."""
    return row.speed is not None and is_sure(row) and row.speed.median <= 1 - CHEAPER


def is_sure(row: Row) -> bool:
    """Whether a step surely takes more, or less, time than the baseline's."""
    return row.speed is not None and (row.speed.high < 1 or row.speed.low > 1)


def answer(rows: Sequence[Row]) -> list[str]:
    """Say in sentences what was found."""
    baseline, scale = _baseline(rows), scale_of(rows)
    others = [row for row in rows if not row.is_baseline and not row.is_twin]
    if _has_failed(baseline):
        sentences = [f"The baseline {baseline.variant} {baseline.happened}, so nothing can be compared with it."]
    else:
        sentences = [_comparison(row, baseline, scale) for row in others if _word(row) in (BETTER, WORSE)]
        sentences += _equals(others, baseline, scale)
        sentences += _open(others, baseline, scale)
        sentences += _undecided(others, baseline)
        sentences += [_control(row, baseline, scale) for row in rows if row.is_twin and row.finding]
    failed = [row for row in rows if _has_failed(row) and not row.is_baseline]
    return [*sentences, *(f"{row.variant} {row.happened}." for row in failed), *_edges(rows), *_remaining(rows)]


def _baseline(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.is_baseline)


def _has_failed(row: Row) -> bool:
    return row.status in (DIVERGED, CRASHED)


def _word(row: Row) -> str:
    return row.finding.word if row.finding else ""


def _lead(row: Row, baseline: Row, scale: Scale) -> str:
    assert row.finding is not None
    mean = row.finding.difference.mean
    return f"its {scale.measure.name} is {scale.size(mean)} {_way(mean)} than {baseline.variant}'s"


def _way(mean: float) -> str:
    return "lower" if mean < 0 else "higher"


def _comparison(row: Row, baseline: Row, scale: Scale) -> str:
    """Say how much better or worse a variant is, how sure that is, and what it costs."""
    assert row.finding is not None
    mean, _, seeds = row.finding.difference
    size = scale.change(row.finding.difference)
    unit = " points" if "points" in scale.unit else ""
    what = f"its final {scale.measure.name}" if scale.measure.name == "loss" else f"its {scale.measure.name}"
    cost = f"; {faster(row.speed, brief=False)}" if is_sure(row) else ""
    return (
        f"{row.variant} is {row.finding.word} than {baseline.variant}: {what} is {size}{unit} {_way(mean)} "
        f"({odds(row.finding.p)}, {number_of(seeds, 'seed')}){cost}."
    )


def _equals(rows: Sequence[Row], baseline: Row, scale: Scale) -> list[str]:
    """Name what is as good, and what of that is cheaper."""
    equal = [row for row in rows if _word(row) == EQUAL]
    if not equal:
        return []
    costs = [f"{row.variant} ({faster(row.speed, brief=False)})" if is_sure(row) else row.variant for row in equal]
    p = max(row.finding.equal for row in equal if row.finding)
    within = scale.share(rows[0].margin)
    return [f"As good as {baseline.variant}, within {within} ({odds(p)}): {join_names(costs)}."]


def _open(rows: Sequence[Row], baseline: Row, scale: Scale) -> list[str]:
    """Name what is likely; of the rest, how small a difference would have been found, and how many seeds would do."""
    sentences = [
        f"{row.variant} is {_word(row)} than {baseline.variant}: {_likely(row, baseline, scale)}."
        for row in rows
        if _word(row) in (LIKELY_BETTER, LIKELY_WORSE)
    ]
    unlike = [row for row in rows if _word(row) == SAME]
    if not unlike:
        return sentences
    least = max(row.finding.least for row in unlike if row.finding)
    sentence = f"No difference from {baseline.variant} was found for {join_names([row.variant for row in unlike])}"
    sentence += f"; one of {scale.size(least)} would have been, four times in five" if least > 0 else ""
    return [*sentences, f"{sentence}{_enough(unlike)}."]


def _undecided(rows: Sequence[Row], baseline: Row) -> list[str]:
    """Name what has too few seeds."""
    few = join_names([row.variant for row in rows if _word(row) == FEW])
    need = f"{findings.ENOUGH} seeds of both must be finished"
    return [f"Too few seeds to tell {few} from {baseline.variant}: {need}."] if few else []


def _control(row: Row, baseline: Row, scale: Scale) -> str:
    """Say what chance alone makes of the baseline."""
    assert row.finding is not None
    size = scale.difference(row.finding.difference)
    unit = " points" if "points" in scale.unit else ""
    text = f"Control: {row.variant}, which is {baseline.variant} from another start, differs by {size}{unit}"
    if row.finding.word in (BETTER, WORSE):
        return f"{text}, which is more than chance should give: trust no finding of this size here."
    return f"{text}, by chance alone."


def _edges(rows: Sequence[Row]) -> list[str]:
    """Name the variants whose search ended with its best learning rate at an end."""
    edges: dict[str, list[str]] = {}
    for row in rows:
        if row.edge:
            edges.setdefault(f"{row.edge} learning rate tried, {row.lr:g},", []).append(row.variant)
    return [
        f"The search ended at its edge: the {edge} was the best for {', '.join(names)}; a better one may lie beyond."
        for edge, names in edges.items()
    ]


def _remaining(rows: Sequence[Row]) -> list[str]:
    left = [row.variant for row in rows if row.status not in (DONE, DIVERGED, CRASHED)]
    return [f"Not finished: {', '.join(left)}; the same command goes on from here."] if left else []
