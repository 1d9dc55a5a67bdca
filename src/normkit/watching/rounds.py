"""When a step of a training with several optimizers ends: once each of them has made one."""

from __future__ import annotations

import torch

PATIENCE = 10  # steps of one optimizer for one of another: a critic makes up to five for one of its generator


class Rounds:
    """Counts the steps of optimizers, by their numbers; a round ends when each has stepped, however often others did.

    One that has not stepped while another did so :data:`PATIENCE` times is waited for no longer, until it steps again.
    Where each parameter has an optimizer, which steps within the backward pass, it is so after a single pass.

    >>> rounds = Rounds(2)
    >>> [(rounds.before(number), rounds.after(number)) for number in (1, 1, 1, 0)]
    [(0, False), (0, False), (0, False), (0, True)]
    """

    def __init__(self, count: int):
        self.counts = [0] * count
        self.awaited = set(range(count))
        self.missing = set(self.awaited)

    def before(self, number: int) -> int:
        """Return how many steps end before an optimizer makes its next one: 0 unless others are waited for in vain."""
        most = PATIENCE if torch._C._current_graph_task_id() == -1 else 1
        steps = self.counts[number]
        if steps < most:
            return 0
        self.awaited -= self.missing
        self._begin()
        return steps

    def after(self, number: int) -> bool:
        """Return whether the step that an optimizer has made ends the round."""
        self.counts[number] += 1
        self.awaited.add(number)
        self.missing.discard(number)
        if self.missing:
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        self.counts = [0] * len(self.counts)
        self.missing = set(self.awaited)
