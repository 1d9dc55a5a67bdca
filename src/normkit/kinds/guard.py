"""A guard of what learns at test time: it compares answers with the source model's, and speaks when they collapse."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.statistics import accurate

OFF, STOP, RESET = GUARDS = ("off", "stop", "reset")
WINDOW = 192  # answers that shares are of
LOSS, GAIN, SURER, MOST = 4.0, 2.5, 5.0, 1.5  # weights in log odds, and the most that doubt is
DRIFT, LIMIT = 0.04, 3.0  # of the test; these and the weights are tuned on digits, benchmarks/guard.py
FEWEST, EXCESS = 32, 0.4  # answers, at least, of which one class may have so much more than of the source's
ACTIONS = {
    STOP: "it stops, and the source answers",
    RESET: "it begins anew, and the source answers this call",
}


class Guard(nn.Module):
    """Tell from the answers of an adapted model and of its source when the adaptation collapses.

    For a sample with the source's probabilities p, which answers a, and the adapted q, which answers another b, the log
    odds that the source is the one that is right are estimated as

        z = 4 (p_a - p_b) - 2.5 (q_b - q_a) - 5 log s + d,  d = log(D_b / D'_a) within -1.5 and 1.5

    from the last 192 answers. A gain counts less than a loss, since adapting makes a model surer without knowing more.
    Of those answers in which both agree, s = (1 + sum q_b) / (1 + sum p_a) is how many times surer the adapted model
    is: one that adapts well is surer there too, one that its batches confuse is not. D_b = (A + 1)² / (n + 1/2) is the
    doubt in class b: A of the adapted model's answers are of it, of which n are the source's too. D'_a is the same of
    the source's answers. So a class that takes more than its part is doubted, whichever model's it is, and less so
    where the other model confirms it. Then

        G <- max(0, G + tanh(z / 2) - 0.04)

    is a Page-Hinkley test: tanh(z / 2) is how many right answers that sample is expected to lose, and G counts those
    above four in a hundred. Above 3 the adaptation has collapsed. So it has where, of at least 32 answers, one class
    has 0.4 of them more than of the source's, however sure of it the adapted model is. Entropy alone is no sign: of
    sound adapters some are surer than the source, and some less sure.

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

        Then there is a warning, and what was seen is forgotten. Logits of NaN or +inf are not looked at.
        """
        self.calls += 1
        source, logits = (accurate(x).reshape(-1, x.shape[-1]) for x in (source, logits))
        if not (is_answer(source) and is_answer(logits)):
            return False
        p, q = source.softmax(1), logits.softmax(1)
        a, b = p.argmax(1, keepdim=True), q.argmax(1, keepdim=True)
        sure, own_sure = p.gather(1, a), q.gather(1, b)
        loss, gain = sure - p.gather(1, b), own_sure - q.gather(1, a)
        rows = torch.cat([a, b, sure, own_sure, loss, gain], 1).tolist()
        before = [one for one in self.answers if len(one) == len(rows[0])]  # older states lack how sure both were
        self.answers = (before + rows)[-max(WINDOW, len(p)) :]
        self.evidence = max(0.0, self.evidence + self._regressions(len(p), p.shape[1]) - DRIFT * len(p))
        common, own, others = self._shares()
        self.excess = own - others
        if self.evidence <= LIMIT and (len(self.answers) < FEWEST or self.excess <= EXCESS):
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

    def _regressions(self, count: int, classes: int) -> float:
        """Estimate how many of the last ``count`` answers are right of the source and wrong of the adapted model."""
        if not count:
            return 0.0
        theirs, mine, sure, own_sure, loss, gain = torch.tensor(self.answers, dtype=torch.float64).unbind(1)
        theirs, mine, agreed = theirs.long(), mine.long(), theirs == mine
        surer = (1 + own_sure[agreed].sum()) / (1 + sure[agreed].sum())
        common = mine[agreed].bincount(minlength=classes) + 0.5
        doubts, own_doubts = ((1 + x.bincount(minlength=classes)).square() / common for x in (theirs, mine))
        doubt = (own_doubts[mine] / doubts[theirs]).log().clamp(-MOST, MOST)
        odds = LOSS * loss - GAIN * gain - SURER * surer.log() + doubt
        return float(torch.where(agreed, 0.0, (odds / 2).tanh())[-count:].sum())

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


def is_answer(logits: Tensor) -> bool:
    """Whether logits give all samples probabilities; those of classes that are masked are -inf."""
    return bool(accurate(logits).softmax(-1).isfinite().all())


def make_guard(owner: object, guard: Any) -> Guard | None:
    """Return the guard that ``guard`` names, None for "off"."""
    check.choice(owner, "guard", guard, GUARDS)
    return None if guard == OFF else Guard(check.whose(owner), guard)


def _mean_entropy(p: Tensor) -> float:
    return float(torch.special.entr(p).sum(1).mean())
