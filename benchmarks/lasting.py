"""How often a finding of a short comparison is found again at two and at four times the steps.

    python benchmarks/lasting.py                  # the table, from what is stored
    python benchmarks/lasting.py --seconds 400    # first trains what is not stored, for so much processor time
    python benchmarks/lasting.py --write          # writes docs/trust.md, and the counts that `normkit compare` states

A finding is a "better" or "worse" of a comparison with the bed's baseline: AdamW on hidden matrices among optimizers,
layer norm (group norm on images) among norms. At more steps it holds if the same word comes out, each arm at its own
best rate there.
"""

import itertools
import json
from collections import Counter

from leaderboard import BEDS, BUDGETS, THEIRS
from normkit.files import replace_file
from normkit.lab.plan.findings import BETTER, WORSE, findings
from normkit.lab.report import lasting
from side_by_side import SEEDS, Arm, Kept, command, stored

STREAM = ("layernorm", "rmsnorm", "scalenorm", "dyt", "derf", "none")
IMAGES = tuple(f"groupnorm:num_groups={groups}" for groups in (3, 1, 6))
IMAGES += ("batchnorm", "dyt:channels_last=False", "derf:channels_last=False", "none")
NORMS = {"text": STREAM, "signals": STREAM, "images": IMAGES}
Variants = dict[str, Arm]


def compared(kind: str, bed: str, steps: int) -> tuple[str, Variants]:
    """The baseline of a comparison, and its variants."""
    if kind == "optimizer":
        return "adamw", {name: Arm(bed, name, steps, hidden=True) for name in THEIRS}
    return NORMS[bed][0], {name: Arm(bed, norm=name, steps=steps) for name in NORMS[bed]}


def arms() -> list[Arm]:
    """All that is trained, the shortest first."""
    return [
        arm
        for steps in BUDGETS
        for kind in lasting.KINDS
        for bed in BEDS
        for arm in compared(kind, bed, steps)[1].values()
    ]


def words(kind: str, bed: str, steps: int, known: dict[str, Kept]) -> dict[str, str]:
    """What a comparison finds of each variant; of those that are stored."""
    baseline, variants = compared(kind, bed, steps)
    values = {
        name: dict(enumerate(known[str(arm)].values[: len(SEEDS)]))
        for name, arm in variants.items()
        if str(arm) in known
    }
    if baseline not in values:
        return {}
    return {name: one.word for name, one in findings(values, baseline=baseline).items()}


def counted(kind: str, times: int, known: dict[str, Kept]) -> Counter[str]:
    """How many findings held, turned or were no longer found at so many times the steps."""
    counts: Counter[str] = Counter()
    for bed, (here, there) in itertools.product(BEDS, itertools.product(BUDGETS, BUDGETS)):
        if there != times * here:
            continue
        later = words(kind, bed, there, known)
        for name, word in words(kind, bed, here, known).items():
            if word in (BETTER, WORSE) and name in later:
                turned = later[name] in (BETTER, WORSE)
                counts["held" if later[name] == word else "turned" if turned else "lost"] += 1
    return counts


def table() -> str:
    """The counts by kind and by how many times the steps."""
    known = stored()
    rows = ["| between | at | held | no longer found | turned |", "| --- " * 5 + "|"]
    for kind, times in itertools.product(lasting.KINDS, (2, 4)):
        counts = counted(kind, times, known)
        cells = [f"{counts['held']} of {counts.total()}", str(counts["lost"]), str(counts["turned"])]
        rows.append(f"| {kind}s | {times} times the steps | {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def main() -> None:
    """Train, and print the table or write it and the counts."""
    if command(__doc__, arms(), "lasting", table):
        known = stored()
        counts = {kind: counted(kind, lasting.TIMES, known) for kind in lasting.KINDS}
        rows = {kind: {"held": found["held"], "of": found.total()} for kind, found in counts.items()}
        replace_file(lasting.KEPT, f"{json.dumps(rows)}\n")


if __name__ == "__main__":
    main()
