"""Interleaved timing: every entrant once a round, many rounds, the median."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from normkit.optional import uncollected

SHORTEST = 1e-3  # seconds: the clock and the loop are lost in a sample of this length
LONG = 0.3  # seconds: after a second call of this length there is nothing to warm up
LONGEST = 2.0  # seconds of a race: after it the rounds end early, once there are FEWEST
FEWEST = 5
WARM_UP = 3  # calls: the first compiles, the second allocates, the third is like all others


@dataclass(frozen=True)
class Entrant:
    """A call to time, and what must hold around it, entered outside of the clock."""

    call: Callable[[], object]
    around: Callable[[], AbstractContextManager] = nullcontext


@dataclass(frozen=True)
class Time:
    """Seconds a call takes: the median of the rounds, its quartiles, and the number of rounds."""

    median: float
    low: float
    high: float
    rounds: int


Clock = Callable[[], float]


def race(
    entrants: Mapping[str, Entrant],
    repeats: int,
    clock: Clock = time.perf_counter,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Time]:
    """Time all entrants in turn, ``repeats`` rounds, fewer if they take long; short calls are repeated within a round.

    Each round has an order of its own: in a fixed one the same entrant would always find the caches that a large one
    has emptied.

    ``progress`` is called with what runs.

    >>> times = race({"a": Entrant(lambda: sum(range(100))), "b": Entrant(lambda: None)}, repeats=3)
    >>> times["a"].median > times["b"].median > 0
    True
    """
    counts = {}
    for name, entrant in entrants.items():
        progress(f"warming up {name}")
        counts[name] = _count(entrant, clock)
    samples: dict[str, list[float]] = {name: [] for name in entrants}
    orders = random.Random(0)
    with uncollected():
        start = clock()
        for done in range(repeats):
            if done >= FEWEST and clock() - start > LONGEST:
                break
            progress(f"round {done + 1} of {repeats}")
            for name, entrant in orders.sample(list(entrants.items()), len(entrants)):
                samples[name].append(_sample(entrant, counts[name], clock))
    return {name: _summary(times) for name, times in samples.items()}


def _count(entrant: Entrant, clock: Clock) -> int:
    """Warm up, once if that takes long, and return how many calls make a sample long enough."""
    start = clock()
    with entrant.around():
        for done in range(WARM_UP):
            began = clock()
            entrant.call()
            if clock() - start > LONGEST or (done and clock() - began > LONG):
                return 1
    once = _sample(entrant, 1, clock)
    return max(1, min(10_000, round(SHORTEST / max(once, 1e-9))))


def _sample(entrant: Entrant, count: int, clock: Clock) -> float:
    call = entrant.call
    with entrant.around():
        start = clock()
        for _ in range(count):
            call()
        return (clock() - start) / count


def _summary(times: list[float]) -> Time:
    if len(times) == 1:
        return Time(times[0], times[0], times[0], 1)
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return Time(median, low, high, len(times))
