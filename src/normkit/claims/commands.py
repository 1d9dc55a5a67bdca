"""Tell whether what papers claim of their methods holds: each claim is measured, beside a control in which it is false.

Words: holds; does not hold; undecided, where the draws do not tell or the control passes too; not tried, with the
reason. Results that come with the package are read; --run measures again. The exit
status is 1 where a claim does not hold or is undecided.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from normkit.claims import engine, pages, shelf
from normkit.claims.engine import UNTRIED, Verdict
from normkit.columns import aligned
from normkit.files import require_place
from normkit.safe import say

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``claim`` takes."""
    command.add_argument("name", nargs="?", metavar="NAME", help="a method, as 'normkit list' prints it")
    command.add_argument("--all", action="store_true", help="all claims, a line each, sorted by verdict")
    command.add_argument("--kind", choices=("identity", *shelf.NEEDS), help="with --all: only this kind")
    command.add_argument("--run", dest="again", action="store_true", help="measure again what has a stored result")
    command.add_argument("--budget", metavar="TIME", help="begin no claim after this time: 90s, 2m, 1h (no limit)")
    command.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    command.add_argument(
        "-o", "--out", "--output", metavar="DIR", help="with --run: write the numbers of each draw, a file a room"
    )
    command.add_argument("--page", metavar="FILE", help="with --all: write the table into this page of the site")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print verdicts; 1 where a claim does not hold or is undecided."""
    require_consistent(options)
    entries = shelf.every(options.kind) if options.all else shelf.claims_of(options.name)
    judged = [*engine.judged(entries, run=options.again, end=engine.deadline(seconds(options.budget)))]
    verdicts = [verdict for verdict, _ in judged]
    if options.all:
        verdicts = engine.together(verdicts)
    if options.out:
        results = [(entry, result) for entry, (_, result) in zip(entries, judged, strict=True) if result is not None]
        for path in shelf.store(results, Path(options.out)):
            say(f"written to {path}", file=sys.stderr)
    if options.page:
        pages.write(Path(options.page), verdicts)
    if options.json:
        say(json.dumps([verdict.to_dict() for verdict in verdicts], indent=2))
    else:
        say(table(verdicts) if options.all else "\n\n".join(parts(entries[0], verdicts)))
    return 1 if {verdict.word for verdict in verdicts} & {engine.FAILS, engine.UNDECIDED} else 0


def require_consistent(options: argparse.Namespace) -> None:
    """Refuse options that have nothing to act on."""
    if options.all == (options.name is not None):
        raise ValueError("name a method, or ask for --all")
    if (options.out and not options.again) or (options.page and not options.all) or (options.kind and not options.all):
        raise ValueError("--out goes with --run; --page and --kind go with --all")
    if options.out:
        require_place(Path(options.out, "claims.json"))
    if options.page and not Path(options.page).is_file():
        raise ValueError(f"--page: {options.page} is no file; a page has lines <!-- claims --> and <!-- /claims -->")


def seconds(budget: str | None) -> float:
    """Read a time.

    >>> seconds("2m"), seconds("90"), seconds(None)
    (120.0, 90.0, inf)
    """
    if budget is None:
        return math.inf
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if match is None:
        raise ValueError(f"--budget is a time such as 90s, 2m or 1h, not {budget!r}")
    return float(match[1]) * SECONDS[match[2]]


def parts(first: shelf.Entry, verdicts: Sequence[Verdict]) -> list[str]:
    """Describe the claims of one method, a paragraph each."""
    head = f"{first.method}: {shelf.source(first)}".removesuffix(": ")
    origin = shelf.origin(first.room)
    foot = [f"Stored results are from {origin}."] if origin else []
    return [head, *map(paragraph, verdicts), *foot]


def paragraph(verdict: Verdict) -> str:
    """Say what is claimed, and what came of it."""
    lines = [f"{verdict.name or verdict.kind}: {verdict.spoken}", f"  {verdict.says}"]
    if verdict.word == UNTRIED:
        return "\n".join([*lines, f"  {verdict.why}"])
    lines.append(f"  {verdict.measured}: {short(verdict.number)}, must be {verdict.wanted}; {verdict.why}")
    lines += [f"  the paper: {verdict.paper}"] if verdict.paper else []
    lines.append(f"  control, {verdict.against}: {short(verdict.control)}")
    if not math.isnan(verdict.least):
        lines.append(f"  smallest effect that would have been found four times in five: {short(verdict.least)}")
    return "\n".join([*lines, *([f"  source: {verdict.source}"] if verdict.source else [])])


def short(number: float) -> str:
    """A number in three digits."""
    return f"{number:.3g}"


def table(verdicts: Sequence[Verdict]) -> str:
    """A line a claim that was tried, sorted by verdict; the others are counted."""
    tried = pages.ordered(verdicts)
    rows = [("method", "claim", "verdict", "number", "must be", "control")]
    rows += [
        (v.method, v.name, v.spoken, short(v.number), v.wanted, short(v.control)) for v in tried
    ]  # fmt: skip
    return "\n".join([*(aligned(rows) if tried else []), *pages.counts(verdicts)])
