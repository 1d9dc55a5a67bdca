"""What few bits made of trained models: which method, and which norm, loses least."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from normkit.lab.logs import DONE
from normkit.lab.plan.bits import ACTIVATIONS, CACHES
from normkit.lab.plan.findings import Interval, interval
from normkit.lab.report.history import Comparison, Record
from normkit.lab.report.tables import Column, Line, Section
from normkit.lab.report.words import with_decimals, with_interval, write_count

ROWS = "quant"
ENOUGH = 4  # variants, over which ranks are compared
SIGNS = {"kurtosis": "kurtosis", "outliers": "the share of outlier channels"}


class FewBits(NamedTuple):
    """What a method made of a variant at so many bits, with intervals over seeds.

    before, after: the held-out loss; growth: of text perplexity over the float model's, else the loss's difference.
    bytes: packed, None where weights stay; seconds: the processor's. kurtosis, outliers: of the inputs of linears.
    why: why the method does not fit; then there are no numbers.
    """

    variant: str
    method: str
    bits: int
    before: Interval
    after: Interval
    growth: Interval
    bytes: float | None
    seconds: float
    kurtosis: float
    outliers: float
    why: str = ""


def in_few_bits(comparison: Comparison) -> list[FewBits]:
    """Return what became of each variant, by method and bits."""
    outcomes = []
    for variant in comparison.variants:
        runs = [run for run in comparison.final_runs(variant) if run.status == DONE and run.end.get(ROWS)]
        rows = [row for run in runs for row in run.end[ROWS]["rows"]]
        for method, bits in dict.fromkeys((row["method"], row["bits"]) for row in rows):
            outcomes.append(_over_seeds(variant, method, bits, runs))
    return outcomes


def _over_seeds(variant: str, method: str, bits: int, runs: Sequence[Record]) -> FewBits:
    of = [(run, _row(run, method, bits)) for run in runs]
    sound = [(run.end[ROWS], row) for run, row in of if row.get("loss") is not None]
    text = is_text(runs)
    growth = [row["loss"] - end["loss"] for end, row in sound]
    sizes = [row["bytes"] for _, row in sound if row["bytes"] is not None]
    return FewBits(
        variant,
        method,
        bits,
        interval(end["loss"] for end, _ in sound),
        interval(row["loss"] for _, row in sound),
        interval(_exp(value) if text else value for value in growth),
        _mean(sizes) if sizes else None,
        _mean(row["seconds"] for _, row in sound),
        _mean(end["kurtosis"] for end, _ in sound if end["kurtosis"] is not None),
        _mean(end["outliers"] for end, _ in sound if end["outliers"] is not None),
        next((row["why"] for _, row in of if "why" in row), ""),
    )


def _row(run: Record, method: str, bits: int) -> dict[str, Any]:
    return next((row for row in run.end[ROWS]["rows"] if (row["method"], row["bits"]) == (method, bits)), {})


def is_text(runs: Iterable[Record]) -> bool:
    """Whether losses are those of tokens, whose exponential is a perplexity."""
    return any(run.end.get("unit") == "tokens" for run in runs)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else math.nan


def section(comparison: Comparison) -> Section | None:
    """Return the table, None where nothing was put into few bits."""
    outcomes = in_few_bits(comparison)
    if not outcomes:
        return None
    text = is_text(run for name in comparison.variants for run in comparison.final_runs(name))
    columns = [
        Column("bits", lambda line: f"{line.of.bits}"),
        Column("loss before", lambda line: with_interval(line.of.before, 3)),
        Column("loss after", lambda line: with_interval(line.of.after, 3)),
    ]
    if text:
        columns.append(Column("perplexity", lambda line: with_decimals(_exp(line.of.after.mean), 3)))
    title = "perplexity ratio" if text else "loss difference"
    columns += [
        Column(title, lambda line: with_interval(line.of.growth, 3)),
        Column("packed bytes", lambda line: write_count(line.of.bytes)),
        Column("CPU seconds", lambda line: with_decimals(line.of.seconds, 2)),
        Column("input kurtosis", lambda line: with_decimals(line.of.kurtosis, 1)),
        Column("outlier channels", lambda line: "" if math.isnan(line.of.outliers) else f"{line.of.outliers:.1%}"),
        Column("why not", lambda line: line.of.why, words=True),
    ]
    lines = [Line(f"{one.variant}, {one.method}", one, one.variant) for one in outcomes]
    return Section("In few bits", [c for c in columns if any(c.text(line) for line in lines)], lines)


def sentences(comparison: Comparison) -> list[str]:
    """Say for each number of bits which variant loses least and which most; of a single variant, by which method."""
    outcomes = [one for one in in_few_bits(comparison) if one.growth.count]
    by = "variant" if len({one.variant for one in outcomes}) > 1 else "method"
    groups: dict[str, list[FewBits]] = {}
    for one in outcomes:
        what = f"{_part(one.method)} in {one.bits} bits" + (f" ({one.method})" if by == "variant" else "")
        groups.setdefault(what, []).append(one)
    return [_compare(what, group, by) for what, group in groups.items() if len(group) > 1]


def _part(method: str) -> str:
    return {ACTIVATIONS: "inputs of linears", **dict.fromkeys(CACHES, "keys and values")}.get(method, "weights")


def _compare(what: str, outcomes: list[FewBits], by: str) -> str:
    """Name the best and the worst, and what tells it beforehand."""
    best, worst = (choose(outcomes, key=lambda one: one.growth.mean) for choose in (min, max))
    sentence = f"With {what}, {getattr(best, by)} loses least: {_size(best)}; {getattr(worst, by)} most: {_size(worst)}"
    ranks = [
        f"{words} {rho:+.2f}" for name, words in SIGNS.items() if (rho := rank_correlation(outcomes, name)) is not None
    ]
    sentence += f"; rank correlation over variants with {' and '.join(ranks)}" if ranks else ""
    return f"{sentence}."


def _size(one: FewBits) -> str:
    return with_interval(one.growth, 3)


def rank_correlation(outcomes: Sequence[FewBits], name: str) -> float | None:
    """Return Spearman's correlation of a sign with what is lost; None of fewer than 4 variants, or of equal ones.

    >>> grown = [Interval(float(n), 0.0, 3) for n in range(5)]
    >>> many = [FewBits("a", "nearest", 2, one, one, one, None, 0.0, one.mean**2, 1.0) for one in grown]
    >>> rank_correlation(many, "kurtosis"), rank_correlation(many, "outliers")
    (1.0, None)
    """
    from scipy.stats import spearmanr

    signs, growth = [getattr(one, name) for one in outcomes], [one.growth.mean for one in outcomes]
    if len(outcomes) < ENOUGH or len(set(signs)) < 2 or len(set(growth)) < 2 or any(math.isnan(sign) for sign in signs):
        return None
    return round(float(spearmanr(signs, growth).statistic), 6)


def reading(comparison: Comparison) -> list[str]:
    """Say how the table is to be read."""
    if not comparison.settings.get("quant"):
        return []
    return [
        "In few bits, each trained model is quantized with 16 batches of the training data, and its held-out loss is "
        "taken again; the perplexity ratio is that over the float model's. Packed bytes count quantized weights at "
        "their bits alone. Kurtosis and outlier channels are those of the inputs of linears, means over layers: a "
        "channel is an outlier where its largest size is above 6 root mean squares of the whole input.",
    ]
