"""Does a small lab order optimizers as a public leaderboard does?

    python benchmarks/leaderboard.py                  # the table, from what is stored
    python benchmarks/leaderboard.py --seconds 400    # first trains what is not stored, for so much processor time
    python benchmarks/leaderboard.py --write          # writes the table into docs/trust.md

The leaderboard is modded-nanogpt's third track, snapshot of 2026-08-01: steps of a GPT of 12 layers and width 768 to a
loss on FineWeb. Of its rows that compare one optimizer with another, these are all whose optimizer is in the catalogue,
but for KL-SOAP, whose step takes twice as long here as any. Each optimizer gets hidden matrices, as nk.param_groups
names them; AdamW at one rate has the rest. Each gets five trials of rate and decay, on one seed, then six seeds.
"""

import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau

from side_by_side import SEEDS, Arm, Kept, command, stored

THEIRS = {  # steps to the loss, and the number of the row
    "hyperball:base=soap": (3125, 27),
    "dynmuon": (3175, 28),
    "pmuon": (3225, 18),
    "normuon": (3250, 10),
    "hyperball:base=normuon": (3250, 8),
    "muon": (3325, 12),
    "hyperball": (3325, 5),
    "muon2": (3325, 7),
    "hyperball:base=adam": (4875, 4),
    "adamw": (5625, 2),
}
BEDS, BUDGETS = ("text", "signals", "images"), (20, 40, 80)
FAR = 500  # steps: pairs that are farther apart in their list are called far
DRAWS = 2000


class Agreement(NamedTuple):
    """How our order agrees with another: tau-b, its interval over seeds, p, and the share of pairs in their order."""

    tau: float
    low: float
    high: float
    p: float
    far: tuple[int, int]
    near: tuple[int, int]
    halves: float


def arms(budgets: Sequence[int] = BUDGETS) -> list[Arm]:
    """All that is trained, the shortest first."""
    return [Arm(bed, name, steps, hidden=True) for steps in budgets for bed in BEDS for name in THEIRS]


def tau(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Kendall's tau-b.

    >>> tau([1.0, 2.0, 3.0], [10, 20, 30]), tau([3.0, 2.0, 1.0], [10, 20, 30])
    (1.0, -1.0)
    """
    return float(kendalltau(ours, theirs).statistic)


def pairs(ours: Sequence[float], theirs: Sequence[float], far: bool) -> tuple[int, int]:
    """How many pairs, far apart in their list or not, have their order in ours, of how many.

    >>> pairs([1.0, 2.0, 0.5], [3000, 3100, 5000], far=True), pairs([1.0, 2.0, 0.5], [3000, 3100, 5000], far=False)
    ((0, 2), (1, 1))
    """
    chosen = [
        (ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0
        for a, b in itertools.combinations(range(len(ours)), 2)
        if theirs[a] != theirs[b] and (abs(theirs[a] - theirs[b]) > FAR) == far
    ]
    return sum(chosen), len(chosen)


def agreement(losses: np.ndarray, theirs: Sequence[float]) -> Agreement:
    """Compare the order of mean losses, of (optimizers, seeds), with theirs.

    The interval is a bootstrap over seeds, which all optimizers have in common; p is two-sided, from shuffled orders.
    """
    chance, ours = np.random.default_rng(0), losses.mean(1)
    seeds = losses.shape[1]
    again = [tau(losses[:, chance.integers(0, seeds, seeds)].mean(1), theirs) for _ in range(DRAWS)]
    shuffled = [abs(tau(chance.permutation(ours), theirs)) for _ in range(DRAWS)]
    value = tau(ours, theirs)
    p = (1 + sum(other >= abs(value) - 1e-9 for other in shuffled)) / (DRAWS + 1)
    halves = tau(losses[:, ::2].mean(1), losses[:, 1::2].mean(1))
    low, high = np.quantile(again, [0.025, 0.975])
    return Agreement(value, low, high, p, pairs(ours, theirs, True), pairs(ours, theirs, False), halves)


def cells(known: dict[str, Kept], bed: str, steps: int) -> list[Kept] | None:
    """The optimizers of a bed at a budget; None where some are not trained yet."""
    names = [str(Arm(bed, name, steps, hidden=True)) for name in THEIRS]
    return [known[name] for name in names] if all(name in known for name in names) else None


def effort(kept: Kept) -> float:
    """What the search gained over the optimizer's usual rate, the first that it tries, as a share of its loss."""
    usual, best = kept.trials[0][2], min(mean for _, _, mean in kept.trials)
    return (usual - best) / usual


def signed(value: float) -> str:
    """Write a tau.

    >>> signed(0.5), signed(-0.125)
    ('+0.50', '-0.12')
    """
    return f"{value:+.2f}"


def table() -> str:
    """The table of tau by bed and budget, the controls, and what it says in words."""
    known, theirs = stored(), [steps for steps, _ in THEIRS.values()]
    rows = ["| bed | steps | tau-b with the leaderboard | p | far pairs | near pairs | two halves of our seeds | "
            "tau-b of what tuning gained |", "| --- " * 8 + "|"]  # fmt: skip
    found: list[Agreement] = []
    edges = trained = 0
    for bed, steps in itertools.product(BEDS, BUDGETS):
        if (kept := cells(known, bed, steps)) is None:
            rows.append(f"| {bed} | {steps} | not trained | | | | | |")
            continue
        one = agreement(np.array([each.values[: len(SEEDS)] for each in kept]), theirs)
        edges, trained = edges + sum(each.edge for each in kept), trained + len(kept)
        gained = signed(tau([-effort(each) for each in kept], theirs))
        shares = [f"{right} of {count}" for right, count in (one.far, one.near)]
        interval = f"{signed(one.tau)} [{signed(one.low)}, {signed(one.high)}]"
        rows.append(
            f"| {bed} | {steps} | {interval} | {one.p:.2g} | {' | '.join(shares)} | {signed(one.halves)} | {gained} |"
        )
        found.append(one)
    if not found:
        return "\n".join(rows) + "\n"
    at_edge = f"The best rate was the lowest or the highest of the trials for {edges} of {trained}."
    return "\n".join([*rows, "", *sentences(found, theirs), "", at_edge, ""])


def sentences(found: Sequence[Agreement], theirs: Sequence[float]) -> list[str]:
    """What the table says."""
    chance = np.random.default_rng(1)
    shuffled = [tau(chance.permutation(len(theirs)), theirs) for _ in range(DRAWS)]
    low, high = np.quantile(shuffled, [0.025, 0.975])
    most = tau([1.0 * place for place in range(len(theirs))], sorted(theirs))
    sure = sum(one.p <= 0.05 for one in found)
    far, near = (np.sum([getattr(one, name) for one in found], 0) for name in ("far", "near"))
    return [
        f"A shuffled order has a tau of {signed(statistics.fmean(shuffled))} [{signed(low)}, {signed(high)}]. "
        f"An order without ties has {signed(most)} at most, since rows of the leaderboard share a number of steps.",
        "",
        f"{sure} of {len(found)} orders differ from a shuffled one (p at most 0.05, each by itself). Of pairs "
        f"more than {FAR} steps apart in the leaderboard, {far[0]} of {far[1]} have its order here; of the other pairs "
        f"{near[0]} of {near[1]}. Every far pair has Adam or Adam in steps of a fixed angle on one side.",
    ]


def main() -> None:
    """Train, and print the table or write it."""
    command(__doc__, arms(), "leaderboard", table)


if __name__ == "__main__":
    main()
