"""The ranked table: one row a variant, whatever became of it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from normkit.columns import number_of
from normkit.lab.logs import CRASHED, DIVERGED, DONE
from normkit.lab.plan import findings, measures
from normkit.lab.plan.findings import Finding, Interval
from normkit.lab.plan.measures import Measure
from normkit.lab.plan.settings import Settings
from normkit.lab.report.history import UNFINISHED, Comparison, Record, points
from normkit.lab.training.speed import Ratio, ratios

WAITING = "not started"
LONGEST = 160  # characters of an error that the table repeats
NOTHING = Interval(math.nan, math.nan, 0)
ORDER = (DONE, UNFINISHED, WAITING, DIVERGED, CRASHED)


@dataclass(frozen=True)
class Row:
    """What became of a variant.

    place: the best and the worst place it may have among the variants that have finished seeds and none that failed,
        by what is measured; equal numbers for all whose difference is not clear. None for what failed, and controls.
    status: done, unfinished, not started, or the worst that befell a seed: diverged, crashed.
    happened: in words, what went wrong or is still missing; empty for a variant of which all is done.
    measured: what variants are compared by, over the finished seeds; final, best: the final and the lowest loss;
        accuracy: the last one logged.
    finding: against the baseline; None for the baseline itself and where a seed failed or none is finished.
    edge: "lowest" or "highest" if the search of the learning rate ended there: a better one may lie beyond; or empty.
    steps_to_baseline: how long it took on held-out data to the baseline's final loss of the same seed, the mean over
        seeds; None if a seed did not get there, or logged no held-out losses.
    seconds, cpu_seconds: how long a run trained, and how long processors worked for it.
    speed: a step's time over the baseline's, timed side by side.
    measure, margin: what all rows are compared by, and the share of the baseline's that counts as no difference.
    clients, worst, spread: of many owners of data, the clients' mean accuracy on data like their own, that of the worst
        one, and the deviation over them; sent: the bytes that travel in a round, both ways.
    unit: what the data's size is counted in: tokens, images or samples, also where a name says tokens.
    """

    variant: str
    is_baseline: bool
    is_twin: bool
    place: tuple[int, int] | None
    status: str
    happened: str
    seeds: int
    planned: int
    lr: float | None
    decay: float | None
    edge: str
    parameters: int | None
    measured: Interval
    final: Interval
    best: Interval
    accuracy: Interval
    finding: Finding | None
    steps_to_baseline: float | None
    seconds: float | None
    cpu_seconds: float | None
    speed: Ratio | None
    tokens_per_second: float | None
    unit: str
    peak_memory: float | None
    measure: Measure
    margin: float
    clients: Interval = NOTHING
    worst: Interval = NOTHING
    spread: Interval = NOTHING
    sent: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What the runs allow one to say: findings and places, and how many seeds each variant was to have."""

    findings: dict[str, Finding]
    places: dict[str, tuple[int, int]]
    planned: dict[str, int]


def rank(comparison: Comparison) -> list[Row]:
    """Return the rows, the best first, then what is unfinished, then what failed."""
    measure, timed = measures.of(comparison.settings), ratios(comparison.folder, comparison.baseline, comparison.rung)
    values = sound_values(comparison)
    judged = judge(comparison, values)
    rows = [_row(comparison, name, judged, timed.get(name)) for name in comparison.variants]
    lead = {name: _lead(scores, values.get(comparison.baseline, {})) for name, scores in values.items() if scores}
    sign = -1 if measure.higher else 1
    return sorted(rows, key=lambda row: (sign * lead.get(row.variant, sign * math.inf), ORDER.index(row.status)))


def sound_values(comparison: Comparison) -> dict[str, dict[int, float]]:
    """Return by seed what the variants of which no seed failed are compared by."""
    key = measures.of(comparison.settings).key
    sound = [name for name in comparison.variants if not _has_failed(comparison, name)]
    return {name: _values(comparison.final_runs(name), key) for name in sound}


def judge(comparison: Comparison, values: Mapping[str, Mapping[int, float]]) -> Judgement:
    """Compare the variants of which no seed failed with the baseline, and with each other."""
    settings, measure = comparison.settings, measures.of(comparison.settings)
    how = {"share": settings.get("margin", Settings.margin), "higher": measure.higher}
    until = bool(settings.get("until_decided"))
    entrants = values if until else {name: results for name, results in values.items() if results}
    verdicts, planned = findings.judged(entrants, comparison.baseline, comparison.twins, comparison.seeds, until, **how)
    ranked = {name: results for name, results in values.items() if results and name not in comparison.twins}
    last = max((planned[name] for name in ranked), default=0)
    level = findings.levels(comparison.seeds).get(last, findings.LEVEL) if until else findings.LEVEL
    return Judgement(
        {name: results for name, results in verdicts.items() if values[name]},
        findings.places(ranked, verdicts, comparison.baseline, level=level, **how),
        {name: planned.get(name, comparison.seeds) for name in comparison.variants},
    )


def _has_failed(comparison: Comparison, name: str) -> bool:
    return status(comparison, name) in (DIVERGED, CRASHED)


def status(comparison: Comparison, variant: str, planned: int = 0) -> str:
    """Tell what became of a variant: the worst of its seeds, or of its search where that left nothing to train."""
    runs = comparison.final_runs(variant)
    searched = comparison.search_runs(variant)
    if not runs and searched and all(run.status in (DIVERGED, CRASHED) for run in searched):
        runs = searched
    if not runs:
        return UNFINISHED if searched else WAITING
    worst = max((run.status for run in runs), key=ORDER.index)
    return UNFINISHED if worst == DONE and sum(run.seed <= planned for run in runs) < planned else worst


def edge(comparison: Comparison, variant: str) -> str:
    """Tell at which end of the learning rates tried the chosen one lies: lowest, highest, or empty for neither."""
    tried = [run.lr for run in comparison.search_runs(variant)]
    final = {run.lr for run in comparison.final_runs(variant)}
    ends = {"lowest": min(tried), "highest": max(tried)} if len(tried) > 1 else {}
    return next((name for name, lr in ends.items() if lr in final), "")


def _row(comparison: Comparison, name: str, judged: Judgement, timed: Ratio | None) -> Row:
    runs, planned = comparison.final_runs(name), judged.planned[name]
    state = status(comparison, name, planned)
    done = [run for run in runs if run.status == DONE]
    key = measures.of(comparison.settings).key
    return Row(
        variant=name,
        is_baseline=name == comparison.baseline,
        is_twin=name in comparison.twins,
        place=judged.places.get(name),
        status=state,
        happened=happened(comparison, name, state, planned),
        seeds=len(done),
        planned=planned,
        lr=runs[0].lr if runs else None,
        decay=runs[0].decay if runs else None,
        edge=edge(comparison, name),
        parameters=next((run.parameters for run in runs), None),
        measured=findings.interval(_values(runs, key).values()),
        final=findings.interval(_values(runs, measures.LOSS).values()),
        best=findings.interval(_finite(run.final("best_loss") for run in done)),
        accuracy=findings.interval(_values(runs, measures.ACCURACY).values()),
        finding=judged.findings.get(name),
        steps_to_baseline=_reach(done, comparison.final_runs(comparison.baseline)),
        seconds=_over(statistics.fmean, (run.final("seconds") for run in done)),
        cpu_seconds=_over(statistics.fmean, (run.final("cpu_seconds") for run in done)),
        speed=timed,
        tokens_per_second=_over(statistics.median, (run.final("tokens_per_second") for run in done)),
        unit=next((str(run.end["unit"]) for run in comparison.runs if "unit" in run.end), "tokens"),
        peak_memory=_over(max, (run.final("peak_memory") for run in runs)),
        measure=measures.of(comparison.settings),
        margin=comparison.settings.get("margin", Settings.margin),
        clients=findings.interval(_values(runs, measures.CLIENTS).values()),
        worst=findings.interval(_values(runs, measures.WORST).values()),
        spread=findings.interval(_values(runs, measures.SPREAD).values()),
        sent=_over(statistics.fmean, (run.final("bytes_per_round") for run in done)),
    )


def happened(comparison: Comparison, variant: str, state: str, planned: int) -> str:
    """Say what went wrong, or what is missing; nothing of a variant of which all is done."""
    runs = comparison.final_runs(variant)
    if state == DONE:
        return ""
    if state == WAITING:
        return "not started"
    if state == UNFINISHED:
        done = f"{sum(run.status == DONE and run.seed <= planned for run in runs)} of {number_of(planned, 'seed')}"
        return f"unfinished: {done if runs else 'in the learning-rate search'}"
    failed = [run for run in runs or comparison.search_runs(variant) if run.status == state]
    where = f"in {len(failed)} of {number_of(len(runs), 'seed')}" if runs else "at every learning rate tried"
    return f"{state} {where}{_why(failed)}"


def _why(failed: Sequence[Record]) -> str:
    errors = Counter(shorten(str(run.end["error"]), LONGEST) for run in failed if run.end.get("error"))
    if errors:
        return f": {errors.most_common(1)[0][0]}"
    bad = {run.end["bad_batch"] for run in failed if run.end.get("bad_batch") is not None}
    if len(bad) > 1:
        return f": batches have NaN or infinite values, the first at step {min(bad)}"
    if bad:
        which = f"the batch of step {min(bad)} has" if min(bad) else "the held-out data have"
        return f": {which} NaN or infinite values"
    steps = [run.last_step for run in failed if run.last_step is not None]
    return f", first at step {min(steps)}" if steps else ""


def _values(runs: Iterable[Record], key: str) -> dict[int, float]:
    """Return a measure of the finished runs by seed."""
    measurements = {run.seed: run.measured(key) for run in runs if run.status == DONE}
    return {seed: value for seed, value in measurements.items() if math.isfinite(value)}


def _lead(losses: Mapping[int, float], baseline: Mapping[int, float]) -> float:
    """Return the mean difference from the baseline over the seeds in common; without any, that of the means."""
    shared = losses.keys() & baseline.keys()
    if shared:
        return statistics.fmean(losses[seed] - baseline[seed] for seed in shared)
    return statistics.fmean(losses.values()) - (statistics.fmean(baseline.values()) if baseline else 0)


def _reach(runs: Sequence[Record], baseline: Sequence[Record]) -> float | None:
    """Return the mean number of steps to the baseline's final loss of the same seed, on held-out data.

    What a loop of the user's own returns says nothing of the training losses that it has logged.
    """
    goals = _values(baseline, measures.LOSS)
    steps = [crossing(points(run.evals), goals[run.seed]) for run in runs if run.seed in goals]
    reached = [step for step in steps if step is not None]
    return statistics.fmean(reached) if reached and len(reached) == len(steps) else None


def crossing(curve: Sequence[tuple[int, float]], level: float) -> float | None:
    """Return the step at which a curve first comes down to a level, on the line between its points; None if never.

    >>> crossing([(0, 4.0), (10, 2.0), (20, 1.0)], 3.0)
    5.0
    """
    before: tuple[int, float] | None = None
    for step, loss in curve:
        if loss <= level:
            if before is None or before[1] == loss:
                return float(step)
            return before[0] + (step - before[0]) * (before[1] - level) / (before[1] - loss)
        before = (step, loss)
    return None


def time_at(run: Record, step: float) -> float:
    """Return the training time at a step, on the line between logged ones; NaN where no time was logged."""
    import numpy as np

    logged = points(run.steps, "seconds")
    steps, seconds = zip((0, 0.0), *logged, strict=True)
    return float(np.interp(step, list(steps), list(seconds))) if logged else math.nan


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _over(reduce: Callable[[list[float]], float], values: Iterable[float]) -> float | None:
    numbers = _finite(values)
    return reduce(numbers) if numbers else None
