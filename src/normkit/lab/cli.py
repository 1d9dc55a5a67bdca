"""Train variants of a model side by side, and rank them by their loss.

Without arguments: layernorm, rmsnorm, dyt and derf in a small decoder on
CPython's documentation, offline, in a minute on two idle cores.
Progress is shown as it goes; what was found is written to
normkit-report/index.html.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from normkit.lab.plan.options import add_arguments
from normkit.lab.plan.settings import WHERE
from normkit.optional import require_group
from normkit.safe import safe, say

EXPORTS = ("csv", "latex", "svg", "png")
CRASHED, UNWRITABLE = 1, 3  # the command's status; 2 is a refusal, 130 and 143 are Ctrl-C and SIGTERM
EXAMPLES = """examples:
  normkit compare
  normkit compare --norm layernorm rmsnorm --placement pre-norm peri-norm
  normkit compare --norm rmsnorm dyt:alpha=0.5 --until-decided --twin
  normkit compare --model mine:Net --data mine:loader --metric accuracy
  normkit compare --model timm:resnet18 --data digits --norm original frn
  normkit compare --model hf:PATH --data text.txt --norm dyt --engine ray
  normkit compare --federated --norm batchnorm fedbn groupnorm
  torchrun --nproc-per-node 2 -m normkit.cli compare --norm rmsnorm --sharded

The same command again goes on where it was stopped. Another one adds to what
is in DIR, norms, seeds or steps: what is not given is as it is there, and only
what is missing is trained. 'normkit list' has the names, 'normkit show NAME'
their arguments.
"""


def add_commands(commands: Any) -> None:
    """Add ``compare`` and ``report`` to the commands of ``normkit``."""
    comparing = commands.add_parser(
        "compare",
        help="train variants of a model side by side",
        usage="normkit compare [--norm NAME ...] [--model MODEL] [--data DATA] [options]",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(comparing)
    comparing.set_defaults(run=run_compare)
    reporting = commands.add_parser(
        "report", help="make the report of a comparison again", description="Make the report again from the logs alone."
    )
    reporting.add_argument("folder", nargs="?", default=WHERE, metavar="DIR", help=f"the comparison's folder ({WHERE})")
    reporting.add_argument(
        "--export", choices=EXPORTS, help="also write, beside the report, the table alone or all pictures"
    )
    reporting.set_defaults(run=run_report)


def run_compare(options: argparse.Namespace) -> int:
    """Train, go on where an earlier call stopped, and tell what was found."""
    require_group("lab")
    from normkit.lab import course, together

    try:
        results = course.compare(options, ["normkit", *sys.argv[1:]])
    except KeyboardInterrupt as stop:
        say(f"\nstopped; the same command goes on from {options.out}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, course.Stopped) else signal.SIGINT)
    except OSError as error:
        say(f"\nstopped: {error}; the same command goes on once this is mended", file=sys.stderr)
        return UNWRITABLE
    if not together.is_first():
        return 0
    print_report(Path(options.out))
    if crashes := course.crashes(results):
        say(f"{crashes}; the same command with --retry runs them again", file=sys.stderr)
    return CRASHED if crashes else 0


def run_report(options: argparse.Namespace) -> int:
    """Make the report again."""
    require_group("lab")
    from normkit.lab.files import Folder

    folder = Folder(options.folder)
    if not folder.plan.is_file():
        raise ValueError(f"{folder.root} holds no comparison: there is no {folder.plan}; 'normkit compare' makes one")
    from normkit.lab.report import page

    try:
        page.write(folder.root)
    except OSError as error:
        raise ValueError(str(error)) from error
    print_report(folder.root)
    if options.export:
        export(folder.root, options.export)
    return 0


def export(folder: Path, form: str) -> None:
    """Write the table as CSV or LaTeX, or the pictures as SVG or PNG, and say where."""
    from normkit.lab.files import replace_file
    from normkit.lab.report import drawing, exports, page

    if form in drawing.FORMS:
        written = drawing.save(page.load(folder), folder / "pictures", form)
        say(f"pictures: {len(written)} in {folder / 'pictures'}")
        return
    ending, write = {"csv": ("csv", exports.csv_text), "latex": ("tex", exports.latex_text)}[form]
    path = folder / f"table.{ending}"
    replace_file(path, write(page.summary(folder)))
    say(f"table: {path}")


def print_report(folder: Path) -> None:
    """Print the ranked table, what it comes to, and where the report lies."""
    from rich.console import Console

    from normkit.lab.files import Folder
    from normkit.lab.report import conclusion
    from normkit.lab.report import page as report
    from normkit.lab.report.history import DAMAGED
    from normkit.lab.report.tables import section_text

    comparison = report.load(folder)
    rows = report.rank(comparison)
    console = Console(highlight=False, markup=False, emoji=False)
    shown = report.rich_table(rows, console.width) if console.is_terminal else report.table(rows)
    console.print(shown, soft_wrap=True)
    for section in conclusion.sections(comparison, rows):
        console.print(section_text(section, console.width if console.is_terminal else None), soft_wrap=True)
    console.print(safe(f"{conclusion.headline(comparison, rows)}.", "terminal"), style="bold")
    for sentence in conclusion.answer(comparison, rows):
        console.print(safe(sentence, "terminal"))
    for note in comparison.notes:
        if note.endswith(DAMAGED):
            console.print(safe(note, "terminal"), soft_wrap=True)
    console.print(safe(f"report: {Folder(folder).report}", "terminal"), soft_wrap=True)
