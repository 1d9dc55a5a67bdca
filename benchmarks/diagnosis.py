"""An exam of the watch: trainings made ill on purpose and healthy ones, of five kinds of model (``ill_runs.py``).

Every run is drawn by its seed: model, size, optimizer, illness. Even seeds are for tuning rules, odd ones for judging
them. Printed are the shares that are right, by illness and by kind of model, and every run that was judged wrongly.

    python benchmarks/diagnosis.py tuning --ill 112 --healthy 50 --log tuning.jsonl
    python benchmarks/diagnosis.py judging --first 5000 --log judging.jsonl --out benchmarks/results/diagnosis.md

``--log`` holds a line a run; a command that was broken off goes on behind the last one.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ill_runs import ILL, STEPS, Run, healthy

HEALTHY = "healthy"
AWAY = 100_000  # the seeds of healthy runs begin so far behind those of ill ones
NOTE = """Half of the runs hand over their loss, the others leave it to the watch. `train eval gap` is sorted data
before a batch norm. Some illnesses are right under either of two names, as a rate that is too high, a missing warm-up
and growing scores (`ILL` in `ill_runs.py`). An illness that needs a certain model, as BatchNorm or attention, is
planted in that model."""
Result = Mapping[str, Any]


def plans(half: str, ill: int, well: int, first: int) -> Iterator[tuple[int, Any]]:
    """Return the seed of each run and what makes it ill; the illnesses take turns, and healthy runs lie between."""
    for number in range(max(ill, well)):
        seed = 2 * (first + number) + (half == "judging")
        if number < ill:
            yield seed, list(ILL)[number % len(ILL)]
        if number < well:
            yield seed + AWAY, healthy


def examine(seed: int, plant: Any) -> Result:
    """Train one run, and return what was planted, and the rules in the order of its diagnosis."""
    began, run = time.process_time(), Run(seed)
    plant(run)
    rules = [finding.rule for finding in run.diagnosis()]
    seconds = time.process_time() - began
    return {"seed": seed, "planted": plant.__name__, "kind": run.kind, "rules": rules, "run": str(run), "s": seconds}


def rank(result: Result) -> float:
    """Return the place of the planted cause among the findings, 0 for the first; of none infinity."""
    names = next(names for plant, names in ILL.items() if plant.__name__ == result["planted"])
    return min((place for place, rule in enumerate(result["rules"]) if rule in names), default=float("inf"))


def is_right(result: Result) -> bool:
    """Whether a healthy run has no finding, and an ill one the planted cause first."""
    return not result["rules"] if result["planted"] == HEALTHY else rank(result) == 0


def shares(results: Sequence[Result], key: str) -> Iterator[str]:
    """Return a row for each value of a key: runs, cause first, cause among three, and what came first."""
    groups = collections.defaultdict(list)
    for result in results:
        groups[result[key]].append(result)
    for name in groups if key == "planted" else sorted(groups):
        group = groups[name]
        first, three = (sum(rank(result) < count for result in group) for count in (1, 3))
        counts = collections.Counter((result["rules"] or ["nothing"])[0] for result in group).most_common()
        rules = ", ".join(f"{rule} {count}" for rule, count in counts) if key == "planted" else ""
        yield f"| {name.replace('_', ' ')} | {len(group)} | {first} | {three} |{f' {rules} |' if rules else ''}"


def table(results: Sequence[Result]) -> Iterator[str]:
    """Return the shares and every run that was judged wrongly as lines of Markdown."""
    ill = [result for result in results if result["planted"] != HEALTHY]
    well = [result for result in results if result["planted"] == HEALTHY]
    alarms = sum(not is_right(result) for result in well)
    first, three = (sum(rank(result) < count for result in ill) for count in (1, 3))
    total = max(len(ill), 1)
    yield f"The planted cause came first in {first} of {len(ill)} ill runs ({first / total:.1%}), and among the first"
    yield f"three in {three} ({three / total:.1%}). Of {len(well)} healthy runs {alarms} had a finding."
    yield from ("", "| planted | runs | cause first | among three | first in the list |")
    yield "| --- | ---: | ---: | ---: | --- |"
    yield from shares(ill, "planted")
    yield from ("", "| model | runs | cause first | among three |", "| --- | ---: | ---: | ---: |")
    yield from shares(ill, "kind")
    yield from ("", "Every run that was judged wrongly:", "")
    yield from ("| seed | planted | run | findings in order |", "| ---: | --- | --- | --- |")
    for result in results:
        if not is_right(result):
            rules = ", ".join(result["rules"]) or "nothing"
            yield f"| {result['seed']} | {result['planted'].replace('_', ' ')} | {result['run']} | {rules} |"


def logged(path: Path | None) -> dict[int, Result]:
    """Return the results of a log by their seeds; half a line at its end is left out."""
    if path is None or not path.exists():
        return {}
    whole = path.read_text()
    whole = whole[: whole.rfind("\n") + 1]
    path.write_text(whole)
    return {result["seed"]: result for result in map(json.loads, whole.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=["tuning", "judging"])
    parser.add_argument("--ill", type=int, default=224, help="how many ill runs; the illnesses take turns")
    parser.add_argument("--healthy", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run: its seed is twice that")
    parser.add_argument("--log", type=Path, help="a file with a line a run, behind which a second call goes on")
    parser.add_argument("--only", help="one illness, or healthy")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done, results = logged(options.log), []
    for seed, plant in plans(options.half, options.ill, options.healthy, options.first):
        if options.only not in (None, plant.__name__):
            continue
        if seed not in done:
            done[seed] = examine(seed, plant)
            if options.log:
                with options.log.open("a") as file:
                    file.write(json.dumps(done[seed]) + "\n")
        result = done[seed]
        results.append(result)
        mark = "  " if is_right(result) else "! "
        print(mark, seed, result["planted"], "|", result["run"], "|", ", ".join(result["rules"]), flush=True)
    lines = [*table(results)]
    print("\n".join(["", *lines]))
    print(f"{sum(result['s'] for result in results):.0f} s of processor time")
    if options.out:
        command = f"python benchmarks/diagnosis.py {options.half} --ill {options.ill} --healthy {options.healthy}"
        seeds = [result["seed"] for result in results if result["planted"] != HEALTHY]
        head = f"`{command} --first {options.first}`, torch {torch.__version__}, {platform.machine()}; {STEPS} steps a "
        head += f"run. Ill runs have the odd seeds {seeds[0]} to {seeds[-1]}, healthy ones those {AWAY:,} beyond."
        options.out.write_text("\n".join(["# An exam of the watch", "", head, "", *lines, "", NOTE, ""]))


if __name__ == "__main__":
    main()
