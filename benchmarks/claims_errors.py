"""How often verdicts on claims err: planted claims whose truth is known, judged alone and as a table.

    python benchmarks/claims_errors.py            # trains what is not stored, and prints the tables
    python benchmarks/claims_errors.py --write    # writes them into docs/claims.md

A planted null is a norm against its twin, itself under another name: another start, the same batches, in a small
network of scikit-learn's digits, whose gains stay 1. The number is the difference of the accuracies on digits that were
held out, in points. A planted effect is such a difference with a known number added. Each is a claim "better by a
point", of eight seeds, judged as claims of trained models are. results/claims-errors.json has every number.
"""

import argparse
import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims import engine, pages, shelf
from normkit.claims.beds import digits
from normkit.claims.kinds import Measured, above, below
from normkit.files import replace_file

ROOT = Path(__file__).parents[1]
KEPT, PAGES = ROOT / "benchmarks/results/claims-errors.json", (ROOT / "docs/claims.md", ROOT / "docs/trust.md")
NORMS = ("layernorm", "rmsnorm", "srmsnorm", "l2-feature-norm")
NULLS, EACH, SIZES, SPREAD = 100, 25, (1.0, 1.5, 2.0, 3.0), 40  # claims; sizes are in deviations
SEEDS, POINT, PIECE = 8, 1.0, 20  # a claim's seeds; the smallest effect of interest; claims that are trained at once
WIDTH, STEPS, BATCH, SPLIT = 24, 80, 16, 1000


def differences(claims: range) -> list[list[float]]:
    """Norm less twin for each claim and seed, in points: all of them trained side by side."""
    name = NORMS[claims[0] // PIECE % len(NORMS)]
    x, labels = digits()
    x = x.flatten(1)
    order, starts = [], []
    for seed in (1000 * claim + seed for claim in claims for seed in range(SEEDS)):
        chance = torch.Generator().manual_seed(seed)
        order += 2 * [torch.randperm(len(x), generator=chance)]
        starts += [torch.randn(64 + 10, WIDTH, generator=chance) for _ in range(2)]
    rows, start = torch.stack(order), torch.stack(starts)
    weights = [(start[:, :64] / 8).requires_grad_(), (start[:, 64:].mT / WIDTH**0.5).requires_grad_()]
    norm = nk.create(name) if name == "l2-feature-norm" else nk.create(name, WIDTH)
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)

    def scores(which: Tensor) -> Tensor:
        return torch.relu(norm(x[which] @ weights[0])) @ weights[1]

    for step in range(STEPS):
        which = rows[:, step * BATCH % (SPLIT - BATCH) :][:, :BATCH]
        optimizer.zero_grad()
        (F.cross_entropy(scores(which).flatten(0, 1), labels[which].flatten()) * len(rows)).backward()
        optimizer.step()
    with torch.no_grad():
        held = rows[:, SPLIT:]
        found = 100 * (scores(held).argmax(-1) == labels[held]).double().mean(1)
    return (found[::2] - found[1::2]).view(len(claims), SEEDS).tolist()


def measured() -> list[list[float]]:
    """The stored numbers, and those that were not stored."""
    numbers = json.loads(KEPT.read_text())["numbers"] if KEPT.is_file() else []
    total = NULLS + EACH * len(SIZES) + SPREAD
    for first in range(len(numbers), total, PIECE):
        numbers += [[round(x, 4) for x in own] for own in differences(range(first, first + PIECE))]
        about = {"normkit": nk.__version__, "commit": shelf._commit(), "torch": torch.__version__,
                 "python": platform.python_version(), "machine": platform.machine()}  # fmt: skip
        rows = ",\n".join(f"  {json.dumps(own)}" for own in numbers)
        KEPT.write_text(f'{json.dumps(about, indent=1)[:-2]},\n "numbers": [\n{rows}\n ]\n}}\n')
    return numbers


def judged(numbers: Sequence[float], number: int, rule: str = "mean") -> engine.Verdict:
    """The verdict on a planted claim: better by a point, or no farther apart than a point."""
    claim = Measured(
        f"planted-{number}",
        says="The norm is better than its twin.",
        measure=lambda seed: numbers[seed],
        wanted=above(POINT) if rule == "mean" else below(POINT),
        control=lambda seed: -99.0,
        against="a difference of -99 points",
        draws=SEEDS,
        rule=rule,
        null=0.0,
    )
    entry = shelf.Entry("planted", "planted", claim.name, claim.kind, claim.says, claim)
    return engine.verdict(entry, engine.measured(claim))


def power(effect: float, deviation: float) -> float:
    """How often such an effect holds: the mean is a point, and the interval above 0, by normal differences."""
    spread = deviation * np.sqrt(stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, SEEDS - 1) / (SEEDS - 1))
    edge = np.maximum(POINT, stats.t.ppf(1 - engine.LEVEL / 2, SEEDS - 1) * spread / SEEDS**0.5)
    return float(stats.norm.sf(edge, effect, deviation / SEEDS**0.5).mean())


def table() -> str:
    """The tables of planted claims, and what becomes of the stored ones when they are judged at once."""
    numbers = measured()
    deviation = statistics.stdev(x for own in numbers[-SPREAD:] for x in own)
    added = [0.0] * NULLS + [size * deviation for size in SIZES for _ in range(EACH)]
    planted = [[x + more for x in own] for own, more in zip(numbers, added, strict=False)]
    verdicts = engine.together([judged(own, at) for at, own in enumerate(planted)])
    holds = np.array([verdict.word == engine.HOLDS for verdict in verdicts])
    kept = holds & ~np.array([verdict.alone for verdict in verdicts])
    fails = np.array([verdict.word == engine.FAILS for verdict in verdicts])
    rows = ["| planted | claims | hold alone | hold in the table | do not hold | holds, predicted |",
            "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    of = np.array(added)
    for effect in sorted(set(added)):
        own = of == effect
        cells = [own.sum(), holds[own].sum(), kept[own].sum(), fails[own].sum()]
        what = f"{effect:.2f} points" if effect else "nothing"
        rows.append(f"| {what} | {' | '.join(map(str, cells))} | {own.sum() * power(effect, deviation):.1f} |")
    null = of == 0
    alone, all_at_once = (f"{100 * which[null].sum() / max(which.sum(), 1):.1f} %" for which in (holds, kept))
    at_margin = sum(judged([x + POINT for x in own], at, "within").word == engine.HOLDS
                    for at, own in enumerate(numbers[:NULLS]))  # fmt: skip
    twins = sum(judged(own, at, "within").word == engine.HOLDS for at, own in enumerate(numbers[:NULLS]))
    return "\n".join([
        *rows,
        "",
        f"Of the claims that hold alone {alone} are false, of those that hold in the table {all_at_once}. From seed to "
        f"seed the differences of twins deviate by {deviation:.2f} points.",
        "",
        f"As good as, within a point: it holds for {twins} of {NULLS} twins, and for {at_margin} of {NULLS} that are "
        "a point apart, where it is false.",
        "",
        of_the_table(),
        "",
    ])  # fmt: skip


def of_the_table() -> str:
    """What becomes of the stored claims that an interval decides."""
    entries = [entry for entry in shelf.every() if entry.claim is None or shelf.stored(entry) is not None]
    verdicts = engine.together(engine.verdicts(entries))
    tested = [v for v in verdicts if v.chance == v.chance]
    decided = [v for v in tested if v.word != engine.UNDECIDED]
    lost = [f"{v.method} {v.name}" for v in decided if v.alone]
    rest = f"all but {len(lost)} keep it ({', '.join(lost)})" if lost else "all keep it"
    return (
        f"An interval decides {len(tested)} of the stored claims. {len(decided)} of them have a verdict, and "
        f"{rest} in the table."
    )


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write them into the pages")
    write, text = parser.parse_args().write, table()
    for page in PAGES if write else ():
        replace_file(page, pages.with_part(page.read_text(encoding="utf-8"), "errors", text))
    print(text)


if __name__ == "__main__":
    main()
