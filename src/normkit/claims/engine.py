"""Measure a claim and its control, and judge.

A claim has one of four words. *Holds* and *does not hold* need a control that fails; where the control passes too, the
measure is blind and the claim *undecided*, and so it is where the bed saw nothing. *Not tried* has a reason.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from normkit.claims import shelf
from normkit.claims.kinds import Bound, Claim
from normkit.claims.shelf import Entry, Result
from normkit.optional import require

HOLDS, FAILS, UNDECIDED, UNTRIED = "holds", "does not hold", "undecided", "not tried"
WORDS = (FAILS, UNDECIDED, HOLDS, UNTRIED)  # as tables sort them
SPENT = "the budget was spent"
TESTED = ("mean", "within")  # rules that an interval decides
LEVEL = 0.05


class Verdict(NamedTuple):
    """What came of a claim.

    method, room, name: whose claim, and which. kind: identity, property, training or beyond. says: the claim in our
    words. word: holds, does not hold, undecided or not tried. why: what led to the word. measured: what the number is.
    number: the worst draw, the median or the mean. wanted: what it must be. against: what the control is. control: its
    number, of the best draw, the median or the mean.
    least: the smallest effect that would have been found four times in five; NaN where every draw is judged.
    chance: how often chance alone gives such a word; NaN where no interval decides, 1 where it is undecided.
    alone: whether the word is that of the claim by itself, and too many were asked to say so of a table.
    reach: "full", or "proxy" of a small model in place of a large one. source: where it is claimed.
    bed: where models were trained. paper: what the paper measured.
    """

    method: str
    room: str
    name: str
    kind: str
    says: str
    word: str
    why: str
    measured: str = ""
    number: float = math.nan
    wanted: str = ""
    against: str = ""
    control: float = math.nan
    least: float = math.nan
    reach: str = "full"
    source: str = ""
    chance: float = math.nan
    alone: bool = False
    bed: str = ""
    paper: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; a number that is not finite is None."""
        plain = self._asdict()
        unknown = [key for key, value in plain.items() if isinstance(value, float) and not math.isfinite(value)]
        return {**plain, **dict.fromkeys(unknown)}

    @property
    def spoken(self) -> str:
        """The word, with the scale where a small model takes a large one's place."""
        scale = " at this scale" if self.reach == "proxy" and self.word in (HOLDS, FAILS) else ""
        return f"{self.word}{scale}{' (alone)' if self.alone else ''}"


def verdicts(entries: Iterable[Entry], *, run: bool = False, budget: float = math.inf) -> list[Verdict]:
    """Judge claims, from stored results where there are any and unless ``run``, for so many seconds at most."""
    return [verdict for verdict, _ in judged(entries, run=run, end=deadline(budget))]


def deadline(budget: float) -> float:
    """Return when so many seconds will have passed, on the engine's clock."""
    return time.monotonic() + budget


def judged(entries: Iterable[Entry], *, run: bool, end: float = math.inf) -> Iterable[tuple[Verdict, Result | None]]:
    """Yield the verdict of each claim, with the numbers that it is from."""
    require("scipy")
    for entry in entries:
        if entry.claim is None:
            yield untried(entry, entry.why), None
            continue
        result = None if run else shelf.stored(entry)
        if result is None:
            if time.monotonic() > end:
                yield untried(entry, SPENT), None
                continue
            result = measured(entry.claim)
        yield verdict(entry, result), result


def measured(claim: Claim) -> Result:
    """Measure a claim and its control on the same seeds; the caller's own random numbers stay where they were."""
    began = time.process_time()
    with torch.random.fork_rng(devices=[]):
        numbers, control = _look(claim, range(claim.draws))
        if claim.rule in TESTED and (_judge(claim, numbers)[0] == UNDECIDED or _passes(claim, control)):
            more = _look(claim, range(claim.draws, claim.further))
            numbers, control = numbers + more[0], control + more[1]
    return Result(numbers, control, time.process_time() - began)


def _look(claim: Claim, seeds: Iterable[int]) -> tuple[list[float], list[float]]:
    """The numbers of a claim and of its control, a seed each."""
    return tuple([_drawn(measure, seed) for seed in seeds] for measure in (claim.measure, claim.control))  # type: ignore


def _drawn(measure, seed: int) -> float:
    torch.manual_seed(seed)
    number = measure(seed)
    return number.item() if isinstance(number, torch.Tensor) else float(number)


def untried(entry: Entry, why: str) -> Verdict:
    """Return a verdict with the reason why there is none."""
    return Verdict(entry.method, entry.room, entry.name, entry.kind, entry.says, UNTRIED, why)


def verdict(entry: Entry, result: Result) -> Verdict:
    """Judge the numbers of a claim."""
    claim = entry.claim
    assert claim is not None
    word, number = _judge(claim, result.numbers)
    control = summary(claim.wanted, claim.rule, result.control, best=True)
    if _passes(claim, result.control):
        word, why = UNDECIDED, f"the measure is blind: the control ({claim.against}) passes too"
    elif claim.bed and not seeing(claim.bed):
        word, why = UNDECIDED, f"the bed {claim.bed} is blind: it did not see what is known"
    else:
        why = _reason(claim, word, len(result.numbers))
    return Verdict(
        entry.method,
        entry.room,
        claim.name,
        claim.kind,
        claim.says,
        word,
        why,
        claim.number,
        number,
        str(claim.wanted),
        claim.against,
        control,
        _least(result.numbers, claim) if claim.rule in TESTED else math.nan,
        claim.reach,
        claim.source,
        chance(claim, word, result.numbers) if claim.rule in TESTED else math.nan,
        bed=claim.bed,
        paper=claim.paper,
    )


def seeing(bed: str) -> bool:
    """Whether a bed saw what is known, by stored results."""
    entries = [(entry, shelf.stored(entry)) for entry in shelf.beds() if entry.method == bed]
    return bool(entries) and all(kept is not None and verdict(entry, kept).word == HOLDS for entry, kept in entries)


def together(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Mark what is decided alone, but not among so many: Benjamini and Hochberg's test at 5 % within each kind."""
    kinds: dict[str, list[float]] = {}
    for verdict in verdicts:
        if not math.isnan(verdict.chance):
            kinds.setdefault(verdict.kind, []).append(verdict.chance)
    edges = {kind: edge(group) for kind, group in kinds.items()}
    return [v._replace(alone=v.word in (HOLDS, FAILS) and v.chance > edges.get(v.kind, 1.0)) for v in verdicts]


def edge(chances: Sequence[float]) -> float:
    """Return the largest chance that is decided, of so many (Benjamini, Hochberg, 1995); below 0 if none is.

    >>> edge([0.001, 0.02, 0.04, 0.5]), edge([0.02, 0.04, 0.5, 1.0])
    (0.02, -1.0)
    """
    passed = [p for rank, p in enumerate(sorted(chances), 1) if p <= LEVEL * rank / len(chances)]
    return max(passed, default=-1.0)


def chance(claim: Claim, word: str, numbers: Sequence[float]) -> float:
    """Return how often numbers with no effect, or with the effect claimed, would lead to this word."""
    from scipy.special import stdtr

    if word == UNDECIDED or not all(map(math.isfinite, numbers)):
        return 1.0
    mean, freedom = statistics.fmean(numbers), len(numbers) - 1
    error, looks = statistics.stdev(numbers) / math.sqrt(len(numbers)), 1 + bool(claim.further)

    def one_sided(distance: float) -> float:
        return looks * float(stdtr(freedom, -distance / error)) if error else float(distance < 0)

    if claim.rule == "within":
        return one_sided(claim.wanted.value - abs(mean)) if word == HOLDS else 2 * one_sided(abs(mean))
    null = claim.wanted.value if claim.null is None or word == FAILS else claim.null
    return min(1.0, 2 * one_sided(abs(mean - null)))


def _judge(claim: Claim, numbers: Sequence[float]) -> tuple[str, float]:
    """Return the word for these numbers alone, and the number that stands for all."""
    bound, number = claim.wanted, summary(claim.wanted, claim.rule, numbers)
    if claim.rule not in TESTED:
        return (HOLDS if bound.met(number) else FAILS), number
    low, high = _interval(numbers, claim)
    if claim.rule == "within":
        outside = number > bound.value and not low <= 0 <= high
        holds, fails = chance(claim, HOLDS, numbers) <= LEVEL, outside
    else:
        null = Bound(bound.value if claim.null is None else claim.null, bound.least)
        safe, hopeful = (low, high) if bound.least else (high, low)
        holds, fails = bound.met(number) and null.met(safe), not (bound.met(hopeful) or math.isnan(hopeful))
    return (HOLDS if holds else FAILS if fails else UNDECIDED), number


def _passes(claim: Claim, numbers: Sequence[float]) -> bool:
    """Whether a control meets what it must not: in any draw where every one counts."""
    return claim.wanted.met(summary(claim.wanted, claim.rule, numbers, best=True))


def summary(wanted: Bound, rule: str, numbers: Sequence[float], *, best: bool = False) -> float:
    """Return the number that stands for all: the mean, the median, or the worst draw (the best one, of a control)."""
    if rule in TESTED:
        mean = statistics.fmean(numbers)
        return abs(mean) if rule == "within" else mean
    if rule == "median":
        return statistics.median(numbers)
    return (max if best else min)(numbers, key=wanted.margin)


def _reason(claim: Claim, word: str, draws: int) -> str:
    if claim.rule == "every":
        return f"{'every' if word == HOLDS else 'not every'} one of {draws} draws is {claim.wanted}"
    means = f"the {'median' if claim.rule == 'median' else 'mean'} of {draws} draws"
    if word == UNDECIDED:
        return f"the interval of {means} reaches to both sides of {claim.wanted.value:.4g}"
    return f"{means} is {'' if word == HOLDS else 'not '}{claim.wanted}"


def _level(claim: Claim) -> float:
    """How often a look may err: each of two looks half as often as one alone."""
    return LEVEL / 2 if claim.further else LEVEL


def _interval(numbers: Sequence[float], claim: Claim) -> tuple[float, float]:
    """The interval of the mean, by Student's t."""
    from normkit.lab.plan import findings

    mean, half, _ = findings.interval(numbers, _level(claim))
    return mean - half, mean + half


def _least(numbers: Sequence[float], claim: Claim) -> float:
    import numpy as np

    from normkit.lab.plan import findings

    return findings.least(np.asarray(numbers), _level(claim))
