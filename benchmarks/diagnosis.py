"""An exam of the watch: trainings made ill on purpose and healthy ones, of five kinds of model (``ill_runs.py``).

Every run is drawn by its seed: model, size, optimizer, illness. Even seeds are for tuning rules, odd ones for judging
them. Printed are which finding came first for each illness, and the shares that are right.

    python benchmarks/diagnosis.py tuning --ill 108 --healthy 50
    python benchmarks/diagnosis.py judging --ill 54 --healthy 21 --out benchmarks/results/diagnosis.md
"""

from __future__ import annotations

import argparse
import collections
import platform
import time
from pathlib import Path

import torch

from ill_runs import ILL, STEPS, Run, healthy

HEALTHY = "healthy"
NOTE = """Half of the runs hand over their loss, the others leave it to the watch. `train eval gap` is sorted data
before a batch norm. A rate that is too high, a missing warm-up and growing scores are right under either of their two
names (`ILL` in `ill_runs.py`). Not planted: the collapse of a router."""


def examine(half, ill, well):
    """Return (illness, what names it, the rules in order, the run) for each seed of a half."""
    plans = [*(list(ILL)[number % len(ILL)] for number in range(ill)), *[healthy] * well]
    for number, plant in enumerate(plans):
        run = Run(2 * number + (half == "judging") + (10_000 if plant is healthy else 0))
        plant(run)
        found = [finding.rule for finding in run.diagnosis()]
        yield plant.__name__, ILL.get(plant, set()), found, str(run)


def table(results):
    """Return the confusions and the shares as lines of Markdown."""
    firsts = collections.defaultdict(collections.Counter)
    hits = collections.defaultdict(lambda: [0, 0])
    ill = [(names, found) for plant, names, found, _ in results if plant != HEALTHY]
    well = [found for plant, _, found, _ in results if plant == HEALTHY]
    for plant, names, found, _ in results:
        firsts[plant][found[0] if found else "nothing"] += 1
        hits[plant][0] += bool(names & set(found[:1]))
        hits[plant][1] += bool(names & set(found[:3]))
    yield "| planted | runs | cause first | among three | first in the list |"
    yield "| --- | ---: | ---: | ---: | --- |"
    for plant, counts in firsts.items():
        names = ", ".join(f"{rule} {count}" for rule, count in counts.most_common())
        first, three = hits[plant] if plant != HEALTHY else ("", "")
        yield f"| {plant.replace('_', ' ')} | {counts.total()} | {first} | {three} | {names} |"
    yield ""
    first = sum(bool(names & set(found[:1])) for names, found in ill)
    three = sum(bool(names & set(found[:3])) for names, found in ill)
    yield f"The planted cause came first in {first} of {len(ill)} ill runs, and among the first three in {three}."
    yield f"Of {len(well)} healthy runs {sum(map(bool, well))} had a finding."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=["tuning", "judging"])
    parser.add_argument("--ill", type=int, default=108, help="how many ill runs; the illnesses take turns")
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--each", action="store_true", help="print each run")
    options = parser.parse_args()
    began = time.perf_counter()
    results = []
    for number, result in enumerate(examine(options.half, options.ill, options.healthy)):
        results.append(result)
        plant, names, found, run = result
        if options.each:
            right = not found if plant == HEALTHY else bool(names & set(found[:1]))
            print("  " if right else "! ", number, plant, "|", run, "|", ", ".join(found) or "nothing", flush=True)
    lines = [*table(results)]
    print("\n".join(lines))
    print(f"{time.perf_counter() - began:.0f} s")
    if options.out:
        command = f"python benchmarks/diagnosis.py {options.half} --ill {options.ill} --healthy {options.healthy}"
        head = f"`{command}`, torch {torch.__version__}, {platform.machine()}; {STEPS} steps a run."
        options.out.write_text("\n".join(["# An exam of the watch", "", head, "", *lines, "", NOTE, ""]))


if __name__ == "__main__":
    main()
