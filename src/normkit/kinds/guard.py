"""A guard of what learns at test time: it compares answers with the source model's, and speaks when they collapse."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.statistics import accurate

OFF, STOP, RESET = GUARDS = ("off", "stop", "reset")
RATIO, DRIFT, LIMIT = 1.25, 0.015, 1.5  # of the test of sureness; all tuned on digits, benchmarks/guard.py
WINDOW, FEWEST = 192, 32  # answers that shares are of, and how many there must be
PLAIN, EXCESS = 0.4, 0.12  # what one class may have more than of the source's: at most, and where the source is surer
CHANGED, INTO = 16, 0.5  # answers that differ, at least, and the share of them that one class may win
ACTIONS = {
    STOP: "it stops, and the source answers",
    RESET: "it begins anew, and the source answers this call",
}


class Guard(nn.Module):
    """Tell from the answers of an adapted model and of its source when the adaptation collapses.

    For a sample with the source's probabilities p, which answers a, and the adapted q, which answers b, the source
    expects to lose p_a - p_b by the other answer, and the adapted model to gain q_b - q_a by it. Adapting makes a model
    surer without knowing more, so that a gain is measured by its own sureness: with s = (1 + sum q_b) / (1 + sum p_a)
    over those of the last 192 answers in which both agree,

        G <- max(0, G + (p_a - p_b) - 1.25 s (q_b - q_a) - 0.015)

    is a Page-Hinkley test of whether the source is the surer of the two where they disagree; above 1.5 the adaptation
    has collapsed. So it has where, of the last 192 answers, one class has 0.4 of them more than of the source's; or,
    while the sum of p_a - p_b is above s times that of q_b - q_a, 0.12 of them more, or half as many more as there are
    answers that differ, of which there must be 16. Entropy alone is no sign: of sound adapters some are surer than the
    source, and some less sure.

    Args:
        owner: the name that warnings begin with.
        action: "stop" or "reset", which the owner does when it speaks.

    ``alarms`` lists the calls at which it spoke and why; ``evidence`` is G, ``excess`` the share above the source's.
    """

    alarms: list[tuple[int, str]]

    def __init__(self, owner: str, action: str):
        super().__init__()
        self.owner, self.action = owner, action
        self.calls, self.alarms = 0, []
        self.clear()

    def clear(self) -> None:
        """Forget what was seen, and that the owner stopped; the alarms stay."""
        self.evidence, self.excess, self.stopped = 0.0, 0.0, False
        self.answers: list[list[float]] = []  # the source's and the adapted model's, how sure both are, loss, gain

    @torch.no_grad()
    def look(self, source: Tensor, logits: Tensor) -> bool:
        """Take in the logits of a batch, (N, K) or (K,), of both models, and tell whether the adaptation has collapsed.

        Then there is a warning, and what was seen is forgotten. Logits that are not finite are not looked at.
        """
        self.calls += 1
        source, logits = (accurate(x).reshape(-1, x.shape[-1]) for x in (source, logits))
        if not (bool(source.isfinite().all()) and bool(logits.isfinite().all())):
            return False
        p, q = source.softmax(1), logits.softmax(1)
        a, b = p.argmax(1, keepdim=True), q.argmax(1, keepdim=True)
        sure, own_sure = p.gather(1, a), q.gather(1, b)
        loss, gain = sure - p.gather(1, b), own_sure - q.gather(1, a)
        rows = torch.cat([a, b, sure, own_sure, loss, gain], 1).tolist()
        before = [one for one in self.answers if len(one) == len(rows[0])]  # older states lack how sure both were
        self.answers = (before + rows)[-max(WINDOW, len(p)) :]
        surer = self._surer()
        self.evidence = max(0.0, self.evidence + float((loss - RATIO * surer * gain).sum()) - DRIFT * len(p))
        common, own, others = self._shares()
        self.excess = own - others
        if self.evidence <= LIMIT and not self._swallowed(surer):
            return False
        why = (
            f"its answers are {_mean_entropy(q):.2f} unsure, the source's {_mean_entropy(p):.2f} (evidence "
            f"{self.evidence:.2f} of {LIMIT:g}); {own:.0%} of the last {len(self.answers)} are class {common}, "
            f"{others:.0%} of the source's"
        )
        self.alarms.append((self.calls, why))
        warnings.warn(
            f"{self.owner}: the adaptation collapses at call {self.calls}, {ACTIONS[self.action]}: {why}", stacklevel=2
        )
        self.clear()
        self.stopped = self.action == STOP
        return True

    def _shares(self) -> tuple[int, float, float]:
        """The class of which the adapted model's answers have most more, and its share of them and of the source's."""
        if not self.answers:
            return 0, 0.0, 0.0
        theirs, mine, *_ = zip(*self.answers, strict=True)
        most = max(sorted(set(mine)), key=lambda one: mine.count(one) - theirs.count(one))
        return int(most), mine.count(most) / len(mine), theirs.count(most) / len(mine)

    def _surer(self) -> float:
        """How many times surer than the source the adapted model is where both agree."""
        agreed = [(sure, own) for theirs, mine, sure, own, _, _ in self.answers if theirs == mine]
        return (1 + sum(own for _, own in agreed)) / (1 + sum(sure for sure, _ in agreed))

    def _swallowed(self, surer: float) -> bool:
        """Whether one class has too many of the last answers."""
        if len(self.answers) < FEWEST:
            return False
        loss, gain = (sum(one[i] for one in self.answers) for i in (4, 5))
        if loss <= surer * gain:
            return self.excess > PLAIN
        changed = sum(theirs != mine for theirs, mine, *_ in self.answers)
        won = self.excess * len(self.answers)
        return self.excess > EXCESS or (changed >= CHANGED and won > INTO * changed)

    def get_extra_state(self) -> dict[str, Any]:
        """What it goes on from."""
        names = ("calls", "stopped", "evidence", "excess")
        alarms = [list(alarm) for alarm in self.alarms]
        return {**{name: getattr(self, name) for name in names}, "answers": self.answers, "alarms": alarms}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, value in state.items():
            setattr(self, name, value)
        self.alarms = [(call, why) for call, why in state["alarms"]]


def make_guard(owner: object, guard: Any) -> Guard | None:
    """Return the guard that ``guard`` names, None for "off"."""
    check.choice(owner, "guard", guard, GUARDS)
    return None if guard == OFF else Guard(check.whose(owner), guard)


def _mean_entropy(p: Tensor) -> float:
    return float(torch.special.entr(p).sum(1).mean())
