"""Are signs that papers found for large models reproduced by small ones?

    python benchmarks/signs.py                  # the table, from what is stored
    python benchmarks/signs.py --seconds 400    # first trains what is not stored, for so much processor time
    python benchmarks/signs.py --write          # writes the table into docs/trust.md

A finding is a sum of runs whose sign a paper tells: of two runs, or of four where the sign of a gap is said to turn.
Arms, signs and smallest effects were written down and committed before any of them was trained. Each run has its own
best rate, of five trials, unless the finding is one of a rate. Losses are held out, in nats. There are two looks,
at six seeds and at eighteen.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from normkit.claims import engine
from normkit.lab.plan.findings import LEVEL, least
from side_by_side import Arm, Kept, command, stored

REPRODUCED, OPPOSITE, UNSEEN = "reproduced", "opposite", "not distinguishable"
LATER, LOOKS = 18, 2  # seeds of a second look; each look spends half of the level
Terms = tuple[tuple[int, Arm], ...]


class Finding(NamedTuple):
    """A published sign: the sum of the terms is positive, by ``smallest`` or more."""

    name: str
    says: str
    source: str
    terms: Terms
    smallest: float = 0.02


class Outcome(NamedTuple):
    """What a finding came to: the mean with half of its interval, p, the word, the least to be seen, and seeds."""

    mean: float
    half: float
    p: float
    word: str
    least: float
    seeds: int


def less(worse: Arm, better: Arm) -> Terms:
    """By how much a run is worse than another."""
    return ((1, worse), (-1, better))


def turn(here: Terms, there: Terms) -> Terms:
    """By how much a gap is larger in one place than in another."""
    return (*here, *((-sign, arm) for sign, arm in there))


TEXT, SIGNALS, IMAGES, CLASSES = Arm("text"), Arm("signals"), Arm("images"), Arm("classes")
FEW = Arm("text", steps=120, share=0.002)
BY_ADAM, BY_MUON = TEXT._replace(hidden=True), TEXT._replace(hidden=True, optimizer="muon")


def gap(norm: str, arm: Arm, over: str = "layernorm") -> Terms:
    """By how much a norm is worse than another."""
    return less(arm._replace(norm=norm), arm._replace(norm=over))


def derf(arm: Arm) -> Terms:
    """How much worse derf is than rmsnorm."""
    return gap("derf", arm, "rmsnorm")


def cold(arm: Arm) -> Terms:
    """What is lost without warm-up."""
    return less(arm._replace(warmup=0.0), arm._replace(warmup=0.2))


def by_sgd(arm: Arm) -> Terms:
    """How much worse SGD is than Adam."""
    return less(arm._replace(optimizer="sgd"), arm)


def without(norm: str, arm: Arm) -> Terms:
    """What a norm gains."""
    return gap("none", arm, norm)


def by_muon(arm: Arm, name: str = "muon") -> Terms:
    """What an optimizer gains over Adam on hidden matrices."""
    arm = arm._replace(hidden=True)
    return less(arm, arm._replace(optimizer=name))


DEEP, PLAIN = TEXT._replace(depth=6, steps=40), SIGNALS._replace(optimizer="sgd")
POST = DEEP._replace(placement="post-norm")
TWO, MANY = IMAGES._replace(batch=2, steps=120), IMAGES._replace(batch=32)
QK = less(TEXT._replace(lr=0.1), TEXT._replace(lr=0.1, qk="head"))
QK_USUAL = less(TEXT._replace(lr=0.01), TEXT._replace(lr=0.01, qk="head"))
TAILED = CLASSES._replace(law="zipf", steps=120)

FINDINGS = (
    Finding("derf", "derf is worse than rmsnorm under AdamW", "2604.01563", derf(BY_ADAM)),
    Finding(
        "derf-muon",
        "derf's gap to rmsnorm is larger under Muon than under AdamW",
        "2604.01563",
        turn(derf(BY_MUON), derf(BY_ADAM)),
    ),
    Finding(
        "derf-alpha",
        "under Muon derf is worse from alpha 0.5 than from 0.3",
        "2604.01563",
        less(BY_MUON._replace(norm="derf"), BY_MUON._replace(norm="derf:alpha=0.3")),
    ),
    Finding("dyt-few", "dyt is better than layernorm on few tokens", "2604.23434", gap("layernorm", FEW, "dyt")),
    Finding(
        "dyt-many", "dyt is worse than layernorm on many tokens", "2604.23434", gap("dyt", FEW._replace(share=1.0))
    ),
    Finding(
        "dyt-turns",
        "dyt's gap to layernorm grows with the number of tokens",
        "2604.23434",
        turn(gap("dyt", FEW._replace(share=1.0)), gap("dyt", FEW)),
    ),
    Finding(
        "dyt-saturates",
        "more of dyt's inputs are saturated after training on few tokens than on many",
        "2604.23434",
        less(FEW._replace(norm="dyt", score="saturated"), FEW._replace(norm="dyt", score="saturated", share=1.0)),
    ),
    Finding(
        "dyt-alpha",
        "on many tokens dyt is worse from alpha 0.5 than from 2",
        "2604.23434",
        less(FEW._replace(share=1.0, norm="dyt"), FEW._replace(share=1.0, norm="dyt:alpha=2.0")),
    ),
    Finding(
        "dyt-width",
        "what dyt gains on few tokens is less at a larger width",
        "2604.23434",
        turn(gap("dyt", FEW._replace(width=48)), gap("dyt", FEW)),
    ),
    Finding(
        "post-norm",
        "six layers: post-norm is worse than pre-norm without warm-up",
        "2002.04745",
        less(POST._replace(warmup=0.0), DEEP._replace(warmup=0.0)),
    ),
    Finding(
        "post-warmup",
        "six layers: warm-up gains more with post-norm than with pre-norm",
        "2002.04745",
        turn(cold(POST), cold(DEEP)),
    ),
    Finding(
        "warmup-rate",
        "warm-up gains more at a higher rate",
        "2406.09405",
        turn(cold(TEXT._replace(lr=0.05)), cold(TEXT._replace(lr=0.005))),
    ),
    Finding(
        "batch-of-2",
        "batch norm is worse than group norm at batches of 2",
        "1803.08494",
        gap("batchnorm", TWO, "groupnorm:num_groups=3"),
    ),
    Finding(
        "batch-2-32",
        "batch norm's gap to group norm is larger at batches of 2 than at 32",
        "1803.08494",
        turn(gap("batchnorm", TWO, "groupnorm:num_groups=3"), gap("batchnorm", MANY, "groupnorm:num_groups=3")),
    ),
    Finding("qk-high", "at a high rate attention is worse without normalized queries and keys", "2302.05442", QK),
    Finding(
        "qk-turns",
        "normalized queries and keys gain more at a high rate than at a usual one",
        "2302.05442",
        turn(QK, QK_USUAL),
    ),
    Finding(
        "batchnorm-rate",
        "batch norm gains more at a high rate than at a tenth of it",
        "1806.02375",
        turn(without("batchnorm", PLAIN._replace(lr=1.0)), without("batchnorm", PLAIN._replace(lr=0.1))),
    ),
    Finding(
        "batchnorm-depth",
        "batch norm gains more at eight layers than at two",
        "1502.03167",
        turn(without("batchnorm", PLAIN._replace(depth=8)), without("batchnorm", PLAIN)),
    ),
    Finding(
        "sgd-text",
        "SGD is farther behind Adam on text than on images",
        "2402.16788",
        turn(by_sgd(TEXT), by_sgd(IMAGES)),
    ),
    Finding(
        "sgd-tail",
        "SGD is farther behind Adam where classes are heavy-tailed",
        "2402.19449",
        turn(by_sgd(TAILED), by_sgd(TAILED._replace(law="even"))),
    ),
    Finding(
        "sgd-batch",
        "SGD is farther behind Adam at larger batches",
        "2304.13960",
        turn(by_sgd(TEXT._replace(batch=32)), by_sgd(TEXT._replace(batch=4))),
    ),
    Finding("muon", "Muon is better than AdamW on hidden matrices", "2502.16982", by_muon(TEXT)),
    Finding(
        "muon-batch",
        "of as many samples Muon gains more at larger batches",
        "2505.02222",
        turn(by_muon(TEXT._replace(batch=32, steps=30)), by_muon(TEXT._replace(batch=8, steps=120))),
    ),
    Finding(
        "muon-tail",
        "Muon gains more on rare classes than on all",
        "2509.26030",
        turn(by_muon(TAILED._replace(score="tail")), by_muon(TAILED)),
    ),
    Finding(
        "normuon", "NorMuon is better than Muon", "2510.05491", less(BY_MUON, BY_MUON._replace(optimizer="normuon"))
    ),
)
CONTROLS = (
    Finding(
        "control: twin", "AdamW is worse than itself from another start", "false", less(TEXT, TEXT._replace(twin=True))
    ),
    Finding("control: half", "half of the steps are worse", "true", less(TEXT._replace(steps=30), TEXT)),
)


def arms() -> list[Arm]:
    """All that is trained; what several findings need comes once."""
    return list(dict.fromkeys(arm for one in (*CONTROLS, *FINDINGS) for _, arm in one.terms))


def outcome(values: np.ndarray, smallest: float) -> Outcome:
    """Judge the sum of each seed.

    >>> outcome(np.array([0.31, 0.30, 0.29, 0.30]), 0.02).word, outcome(-np.array([0.31, 0.30, 0.29]), 0.02).word
    ('reproduced', 'opposite')
    >>> outcome(np.array([0.3, -0.3, 0.1]), 0.02).word, outcome(np.array([0.0011, 0.001, 0.0009]), 0.02).word
    ('not distinguishable', 'not distinguishable')
    """
    if not np.isfinite(values).all():
        return Outcome(float("nan"), float("nan"), 1.0, UNSEEN, float("nan"), len(values))
    mean, error, freedom = values.mean(), values.std(ddof=1) / len(values) ** 0.5, len(values) - 1
    half = float(stdtrit(freedom, 1 - LEVEL / LOOKS / 2) * error)
    p = min(1.0, LOOKS * 2 * float(stdtr(freedom, -abs(mean) / error)))
    sure = abs(mean) > half and abs(mean) >= smallest
    return Outcome(
        mean,
        half,
        p,
        (REPRODUCED if mean > 0 else OPPOSITE) if sure else UNSEEN,
        least(values, LEVEL / LOOKS),
        len(values),
    )


def judged(finding: Finding, known: dict[str, Kept]) -> Outcome | None:
    """Judge a finding by the seeds that all of its runs have; None where a run is not there yet."""
    if any(str(arm) not in known for _, arm in finding.terms):
        return None
    runs = [(sign, known[str(arm)].values) for sign, arm in finding.terms]
    seeds = min(len(values) for _, values in runs)
    return outcome(np.sum([sign * np.array(values[:seeds]) for sign, values in runs], 0), finding.smallest)


def table() -> str:
    """The table of findings, the controls last."""
    known = stored()
    rows = ["| finding | source | effect, nats | seeds | could have seen | sign |", "| --- " * 6 + "|"]
    found = {one: seen for one in (*FINDINGS, *CONTROLS) if (seen := judged(one, known)) is not None}
    for word in (REPRODUCED, OPPOSITE, UNSEEN):
        rows += [row(one, seen) for one, seen in found.items() if seen.word == word and one not in CONTROLS]
    rows += [row(one, seen) for one, seen in found.items() if one in CONTROLS]
    tried = {one: seen for one, seen in found.items() if one not in CONTROLS}
    words = [seen.word for seen in tried.values()]
    counts = [f"{words.count(word)} are {word}" for word in (REPRODUCED, OPPOSITE, UNSEEN)]
    edge = engine.edge([seen.p for seen in tried.values()])
    kept = sum(seen.word != UNSEEN and seen.p <= edge for seen in tried.values())
    decided, left = len(words) - words.count(UNSEEN), len(FINDINGS) - len(tried)
    lines = [
        f"Of {len(tried)} signs {', '.join(counts[:2])}, and {counts[2]}. {kept} of the {decided} that were decided "
        "stay so where all are tested at once (Benjamini and Hochberg, 5 %)."
    ]
    lines += ["", f"{left} more were written down and are not trained yet."] if left else []
    return "\n".join([*rows, "", *lines, ""])


def row(finding: Finding, seen: Outcome) -> str:
    """A row of the table."""
    source = f"arXiv {finding.source}" if finding in FINDINGS else f"control: {finding.source}"
    effect = f"{seen.mean:+.3f} ± {seen.half:.3f}"
    return f"| {finding.says} | {source} | {effect} | {seen.seeds} | {seen.least:.3f} | {seen.word} |"


def main() -> None:
    """Train, and print the table or write it."""
    command(__doc__, arms(), "signs", table, LATER)


if __name__ == "__main__":
    main()
