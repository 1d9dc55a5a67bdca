"""The constants of a method, from what a module makes of small numbers, as a person would have written them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

GRID = [0.0, *(10.0 ** (power / 2) for power in range(-60, 9))]
WRITTEN = (
    *(torch.finfo(t).eps for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16)),
    torch.finfo().tiny,
)


def smallest(error: Callable[[float, float], float]) -> float:
    """Return the number, 0 or larger, at which an error is least; of one above its bound the error may be any above it.

    >>> round(smallest(lambda value, bound: abs(math.log(value / 3e-6)) if value else 9), 9)
    3e-06
    """
    least, best = math.inf, 0.0
    for value in GRID:
        if (far := error(value, least)) < least:
            least, best = far, value
    if best == 0.0:
        return 0.0
    low, high = math.log(best) - 1.2, math.log(best) + 1.2
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left = error(math.exp(left), math.inf)
    at_right = error(math.exp(right), at_left)
    while high - low > 1e-7:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = error(math.exp(left), at_right)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = error(math.exp(right), at_left)
    return math.exp((low + high) / 2)


def plain_numbers(value: float) -> Iterator[float]:
    """Return what a person may have written for a number that was measured, the plainest first.

    >>> next(plain_numbers(1.0000031e-5)), next(plain_numbers(0.0999999)), list(plain_numbers(0.0))
    (1e-05, 0.1, [0.0])
    """
    if value == 0.0:
        yield 0.0
        return
    near = [known for known in WRITTEN if abs(math.log(value / known)) < 1e-3]
    plain = [float(f"{value:.{digits}g}") for digits in (1, 2, 3)]
    yield from dict.fromkeys([*plain[:1], *near, *plain[1:]])
