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

from normkit.lab.plan import measures
from normkit.lab.plan.plan import SPLITS, Settings
from normkit.lab.plan.variants import SLOTS
from normkit.lab.request import MOST, ROUNDS
from normkit.optional import require_group
from normkit.safe import safe, say

WHERE = "normkit-report"
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
    commands.add_parser("fit", help="fit densities to a table or images").describe = describe_fit
    reporting = commands.add_parser(
        "report", help="make the report of a comparison again", description="Make the report again from the logs alone."
    )
    reporting.add_argument("folder", nargs="?", default=WHERE, metavar="DIR", help=f"the comparison's folder ({WHERE})")
    reporting.add_argument(
        "--export", choices=EXPORTS, help="also write, beside the report, the table alone or all pictures"
    )
    reporting.set_defaults(run=run_report)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``compare`` takes.

    With argparse, since lists are written ``--norm layernorm rmsnorm``, which typer and click cannot read.
    """
    what = command.add_argument_group("what is compared")
    for name, slot in SLOTS.items():
        what.add_argument(f"--{name}", nargs="+", metavar="NAME", help=slot.help)
    what.add_argument(
        "--allow-leak",
        action="store_true",
        default=None,
        help="let norms that take in later tokens stand where these are predicted",
    )
    what.add_argument("--variants", metavar="FILE", help="a YAML file instead: lists to cross, or 'variants', a list")
    what.add_argument("--baseline", metavar="NAME", help="the variant that others are tested against (the first)")
    on = command.add_argument_group("on what")
    on.add_argument(
        "--model",
        metavar="MODEL",
        help="decoder, vit, resnet, each with sizes: "
        "decoder:dim=128,depth=6; hf:PATH_OR_NAME, timm:NAME, module:factory (decoder:depth=2)",
    )
    on.add_argument(
        "--train",
        metavar="NAME",
        help="module:function, a training loop of your own instead: function(build, seed, log) returns its measure",
    )
    on.add_argument(
        "--data",
        metavar="DATA",
        help="python-docs, digits, a text file, a folder of text or of images, "
        "hf:NAME, hf:NAME@SPLIT, module:loader (what suits the model)",
    )
    on.add_argument(
        "--val",
        metavar="DATA",
        help="held-out data, named as --data is; of hf:NAME also the name of a split (a tenth of the data, drawn once)",
    )
    on.add_argument("--batch", type=int, metavar="N", help="samples of a batch (8; images 64; a loader's own)")
    on.add_argument("--length", type=int, metavar="N", help=f"tokens of a sequence ({Settings.length})")
    many = command.add_argument_group("many owners of data")
    many.add_argument(
        "--federated",
        action="store_true",
        default=None,
        help="divide the data among clients; a step is then a round: each client trains, a server puts states together",
    )
    many.add_argument("--clients", type=int, metavar="N", help=f"how many ({Settings.clients})")
    many.add_argument(
        "--split",
        metavar="HOW",
        help=f"who has what: {'; '.join(f'{name}, {said}' for name, said in SPLITS.items())} ({Settings.split})",
    )
    many.add_argument(
        "--local-steps", type=int, metavar="N", help=f"steps of each client in a round ({Settings.local_steps})"
    )
    by = command.add_argument_group("by what, and how surely")
    by.add_argument(
        "--metric",
        metavar="NAME",
        help="what variants are compared by: loss, accuracy, or module:function, a function of the model and a list of "
        "held-out batches (loss); with --federated also client-accuracy, the clients' mean on data like their own, and "
        "worst-client",
    )
    by.add_argument(
        "--metric-direction",
        choices=measures.DIRECTIONS,
        help="which values of a module:function are better (its attribute higher_is_better)",
    )
    by.add_argument(
        "--margin",
        type=float,
        metavar="X",
        help=f"difference that counts as none, as a share of the baseline's measure ({Settings.margin})",
    )
    by.add_argument("--seeds", type=int, metavar="N", help=f"runs of each variant, from 1 ({Settings.seeds})")
    by.add_argument(
        "--until-decided",
        action="store_true",
        default=None,
        help=f"add seeds until each variant is better, worse or as good, --seeds at most ({MOST})",
    )
    by.add_argument(
        "--twin", action="store_true", help="also train the baseline from another start, to see what chance gives"
    )
    how = command.add_argument_group("how it is trained")
    how.add_argument("--steps", type=int, metavar="N", help=f"steps of a run ({Settings.steps}; rounds, {ROUNDS})")
    how.add_argument("--seconds", type=float, metavar="S", help="instead of steps: seconds of training of a run")
    how.add_argument("--lr", nargs="+", type=float, metavar="X", help="learning rates to search; one: no search")
    how.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="the most trials of each variant's search, a run each: the optimizer's usual rate and three times that, "
        f"then further ones while the best is the lowest or highest ({Settings.trials}); 1: no search",
    )
    for name, meaning in (
        ("warmup", "share of a run with a growing rate"),
        ("clip", "greatest gradient norm; 0: any"),
        ("weight_decay", "for matrices"),
    ):
        option, default = f"--{name.replace('_', '-')}", getattr(Settings, name)
        how.add_argument(option, type=float, metavar="X", help=f"{meaning} ({default})")
    where = command.add_argument_group("where")
    where.add_argument(
        "--engine",
        default="local",
        choices=("local", "here", "ray"),
        help="processes beside this one, this one alone, or Ray (local); under torchrun, its processes share each run",
    )
    where.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where to train (auto)")
    where.add_argument("--precision", choices=("no", "bf16", "fp16"), help="mixed precision (no)")
    where.add_argument("--sharded", action="store_true", help="under torchrun: FSDP2 instead of DDP")
    where.add_argument("--workers", type=int, metavar="N", help="runs side by side (one a core or GPU)")
    where.add_argument("--threads", type=int, metavar="N", help="threads of a run (the cores shared out)")
    where.add_argument(
        "-o", "--out", "--output", default=WHERE, metavar="DIR", help=f"folder for logs and report ({WHERE})"
    )
    where.add_argument("--fresh", action="store_true", help="delete the comparison that is there, and begin again")
    where.add_argument("--retry", action="store_true", help="run those again that crashed")
    where.add_argument(
        "--trust",
        action="store_true",
        help="import the code that the plan in DIR names (module:name), also where this command does not name it",
    )


def describe_fit(command: argparse.ArgumentParser) -> None:
    """Describe ``normkit fit``."""
    from normkit.lab.fit import run

    run.add_arguments(command)


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
    tell(Path(options.out))
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
    tell(folder.root)
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


def tell(folder: Path) -> None:
    """Print the ranked table, what it comes to, and where the report lies."""
    from rich.console import Console

    from normkit.lab.files import Folder
    from normkit.lab.report import page as report

    rows = report.summary(folder)
    console = Console(highlight=False, markup=False)
    shown = report.rich_table(rows, console.width) if console.is_terminal else report.table(rows)
    console.print(shown, soft_wrap=True)
    console.print(safe(f"{report.headline(rows)}.", "terminal"), style="bold")
    for sentence in report.answer(rows):
        console.print(safe(sentence, "terminal"))
    console.print(safe(f"report: {Folder(folder).report}", "terminal"), soft_wrap=True)
