"""Processor's time, compared: the least of several rounds, in turns, so that load strikes all alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from normkit.claims.measures import slope


def seconds(*functions: Callable[[], Any], rounds: int = 5) -> list[float]:
    """The least processor's time of each function, after a first call that is not counted."""
    for function in functions:
        function()
    least = [math.inf] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            began = time.process_time()
            function()
            least[index] = min(least[index], time.process_time() - began)
    return least


def growth(call_of: Callable[[int], Callable[[], Any]], sizes: Sequence[int], rounds: int = 3) -> float:
    """The slope of the logarithm of the time against that of the size."""
    spent = seconds(*map(call_of, sizes), rounds=rounds)
    return slope([math.log(size) for size in sizes], [math.log(value) for value in spent])
