"""Time methods against what else computes them on this machine.

The entrants run in turn, A B C A B C, so that a slow second of the machine falls on all alike: normkit as a user
gets it; PyTorch's own module for the same numbers, where there is one; torch's LayerNorm; the formula in plain PyTorch;
the formula under torch.compile; and a plain copy of the input, which no method can beat. Inputs, sizes and peers come
from the cards. All methods of one vector (the default) take a few minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from normkit import catalog
from normkit.bench import cases, cost, report
from normkit.bench.cases import Case
from normkit.catalog import Card

FORMATS = ("text", "markdown")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe ``normkit bench`` on the command line."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("names", nargs="*", metavar="NAME", help="methods to time (default: the room or group chosen)")
    command.add_argument("--room", metavar="ROOM", help=f"all methods of a room: {', '.join(catalog.ROOMS)}")
    command.add_argument("--group", metavar="GROUP", help="all methods of a group (default: token)")
    command.add_argument("--sizes", metavar="LIST", help="shapes of the input, such as 256x768,4096x768 or 32x64x56x56")
    command.add_argument("--dtypes", metavar="LIST", default="float32,bfloat16", help=", ".join(cases.DTYPES))
    command.add_argument(
        "--repeats", type=int, default=15, metavar="N", help="rounds of each race, fewer if slow (default: 15)"
    )
    command.add_argument("--forward", action="store_true", help="the forward pass only")
    command.add_argument("--no-compile", action="store_true", help="leave out torch.compile, the slowest to prepare")
    command.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    command.add_argument("--json", metavar="FILE", type=Path, help="also write everything measured, as JSON")
    command.add_argument("--csv", metavar="FILE", type=Path, help="also write the table as CSV")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Race, print the table, write the files."""
    if options.repeats < 1:
        raise ValueError(f"--repeats must be at least 1, not {options.repeats}")
    for file in filter(None, [options.json, options.csv]):
        if not file.parent.is_dir():
            raise ValueError(f"{file}: there is no folder {file.parent}")
    lined_up = line_up(options)
    record = {"machine": report.machine(), **measure(lined_up, options.repeats, not options.no_compile)}
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.csv:
        options.csv.write_text(report.csv_text(record["rows"]))
    print(report.markdown(record) if options.markdown else report.text(record))
    return 0


def line_up(options: argparse.Namespace) -> list[Case]:
    """Return the races that the options ask for."""
    cards = chosen(options.names, options.room, options.group)
    sizes = cases.sizes(options.sizes) if options.sizes else None
    passes = ("forward",) if options.forward else cases.PASSES
    found = cases.cases(cards, sizes, cases.dtypes(options.dtypes), passes)
    if not found:
        raise ValueError(f"no method chosen takes an input of size {options.sizes}")
    for card in cards:
        if all(case.card is not card for case in found):
            print(f"{card.name} takes ({card.shape}), so none of the sizes fits it", file=sys.stderr)
    return found


def chosen(names: list[str], room: str | None, group: str | None) -> list[Card]:
    """Return the cards named, or those of the room and group, or those of one vector."""
    if not names:
        names = catalog.methods(room=room, group=group if room or group else "token")
    return [catalog.card(name) for name in names]


def measure(lined_up: list[Case], repeats: int, compile: bool) -> dict[str, Any]:
    """Run the races one after the other, telling on stderr how far they are."""
    rows, failed = [], {}
    for index, case in enumerate(lined_up, 1):
        print(f"[{index}/{len(lined_up)}] {case}", file=sys.stderr, flush=True)
        try:
            rows.append(cases.run(case, repeats, compile))
        except (ValueError, TypeError, RuntimeError) as error:
            failed[str(case)] = str(error).split("\n")[0]
        except KeyboardInterrupt:
            print("stopped; here is what was measured before", file=sys.stderr)
            break
    return {"rows": rows, "failed": failed, "import_seconds": cost.import_seconds()}
