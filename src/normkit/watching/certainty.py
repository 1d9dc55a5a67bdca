"""How sure a finding is, and what could not be judged at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from normkit.columns import number_of
from normkit.watching.finding import Finding
from normkit.watching.history import LOSS, History

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
RANK = {CERTAIN: 0, LIKELY: 1, POSSIBLE: 2, "": 0}
FAR, CLEAR = 2.0, 1.2  # how many times a number lies beyond its bound
MANY, SOME = 3, 2  # samples that show it


def certainty(finding: Finding, steps: Sequence[int]) -> str:
    """Say how sure a finding is: by how far its number lies beyond the bound, and by how many samples show it.

    What is read off the model or is no number at all needs no bound, and one sample is enough.

    >>> finding = Finding("units are dead", 3.0, ("0",), "", margin=2.5, since=1)
    >>> certainty(finding, [1, 5, 10]), certainty(finding, [1, 5]), certainty(finding, [1])
    ('certain', 'likely', 'possible')
    """
    shown = sum(step >= (finding.since or 0) for step in steps)
    if math.isinf(finding.margin) or (finding.margin >= FAR and shown >= MANY):
        return CERTAIN
    return LIKELY if finding.margin >= CLEAR and shown >= SOME else POSSIBLE


def always(history: History) -> bool:
    """Ask of every training."""
    return True


def enough(history: History) -> str:
    """Want nothing more."""
    return ""


class Needs(NamedTuple):
    """What a rule must have seen to judge; it stands beside the rule as ``NEEDS``.

    what: the question, behind "whether". reads: numbers that must have been read. samples: of the first of them.
    steps: of the training. asked: whether the question arises at all. short: says what else there is too little of.
    """

    what: str
    reads: tuple[str, ...] = ()
    samples: int = 1
    steps: int = 0
    asked: Callable[[History], bool] = always
    short: Callable[[History], str] = enough

    def missing(self, history: History) -> str:
        """Say why there is no answer; nothing where there is one."""
        for what in self.reads:
            if not _samples(history, what):
                return UNREAD.get(what, f"{what} was not read")
        count = _samples(history, self.reads[0]) if self.reads else len(history.steps)
        if count < self.samples:
            return f"{number_of(count, 'sample')}, where {self.samples} are needed"
        if history.steps[-1] < self.steps:
            return f"{number_of(history.steps[-1], 'step')}, where {self.steps} are needed"
        return self.short(history)


UNREAD = {
    LOSS: "no loss was read; seen.loss(loss) hands it over",
    "update": "no steps were seen; nk.watch(model, optimizer) sees them",
    "gradient": "no gradients were read",
    "dead": "activations were not read, or only fewer than 16 values of a channel or 8 pictures",
    "entropy": "no scores were heard, as of kernels that are not torch's own, or of heads joined with the samples, "
    "whose scores have three axes",
}
"""Why a number is missing, and what helps."""


def _samples(history: History, what: str) -> int:
    return max((int(history.was_read(where, what).sum()) for where in history.names(what)), default=0)


def unknown(history: History, asked: Iterable[Needs]) -> Iterator[str]:
    """Return what cannot be judged of a training, and why; nothing of a model that is not in training."""
    if not history.steps or not history.facts.get("groups"):
        return
    reasons: dict[str, list[str]] = {}
    for needs in asked:
        if needs.asked(history) and (reason := needs.missing(history)):
            reasons.setdefault(reason, []).append(needs.what)
    for reason, questions in reasons.items():
        *most, last = questions
        yield f"whether {', '.join(most)}{' or ' if most else ''}{last}: {reason}"
