"""Where the time of a process goes: seconds by part, each second to the innermost part that it is in.

>>> clock = Clock()
>>> with clock.part("building"), clock.part("recognition"):
...     pass
>>> sorted(clock.seconds)
['building', 'recognition']
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

START, BUILDING, RECOGNITION = "start-up and checks", "building", "recognition"
TRAINING, EVALUATION, REST = "training", "evaluation", "logs, checkpoints and watch"
RUNS, RACE, REPORT = "runs", "timing of steps", "report"


class Clock:
    """Adds up seconds by part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.inside: list[str] = []
        self.since = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time within as of a part, and not of the one around it."""
        self._turn()
        self.inside.append(name)
        try:
            yield
        finally:
            self._turn()
            self.inside.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self.inside:
            self.seconds[self.inside[-1]] += now - self.since
        self.since = now

    def give(self, part: str, inner: str, seconds: float) -> None:
        """Count seconds of one part as of another, which another clock has measured within it."""
        self.seconds[part] -= seconds
        self.seconds[inner] += seconds

    def read(self) -> dict[str, float]:
        """Return the seconds so far, in the order in which parts began, and begin anew."""
        self._turn()
        seconds = {name: round(value, 4) for name, value in self.seconds.items()}
        self.seconds.clear()
        return seconds


OF_A_RUN = Clock()  # of the run that this process trains; a process trains one at a time
