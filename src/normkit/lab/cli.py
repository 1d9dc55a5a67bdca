"""Train variants of a model side by side, and rank them by their loss.

Without arguments: layernorm, rmsnorm, dyt and derf in a small decoder on CPython's documentation, offline, in under
three minutes on two idle cores. Progress is shown as it goes; what was found is written to normkit-report/index.html.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.lab.plan import measures
from normkit.lab.plan.plan import Settings
from normkit.optional import require_group

if TYPE_CHECKING:
    from normkit.lab.plan.plan import Plan, Variant

NORMS = ["layernorm", "rmsnorm", "dyt", "derf"]
WHERE = "normkit-report"
CRASHED, UNWRITABLE = 1, 3  # the command's status; 2 is a refusal, 130 and 143 are Ctrl-C and SIGTERM
MOST = 24  # seeds, where they go on until it is decided
SHOWN = 5  # crashed runs that are named
EXAMPLES = """examples:
  normkit compare
  normkit compare --norm layernorm rmsnorm --placement pre-norm peri-norm --steps 500
  normkit compare --norm rmsnorm dyt:alpha=0.5 dyt:alpha=1 --baseline rmsnorm --until-decided --twin
  normkit compare --model mine:Net --data mine:train_loader --val mine:val_loader --metric accuracy
  normkit compare --model timm:resnet18 --data digits --norm original groupnorm:num_groups=8
  normkit compare --model hf:PATH --data text.txt --norm original dyt --engine ray
  torchrun --nproc-per-node 2 -m normkit.cli compare --norm rmsnorm dyt --sharded

The same command again goes on where it was stopped. 'normkit list' has the names, 'normkit show NAME' their arguments.
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
    reporting.set_defaults(run=run_report)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``compare`` takes.

    With argparse, since lists are written ``--norm layernorm rmsnorm``, which typer and click cannot read.
    """
    what = command.add_argument_group("what is compared")
    what.add_argument(
        "--norm",
        nargs="+",
        metavar="NAME",
        help=f"norms of the catalogue ({' '.join(NORMS)}; where something else is compared, layernorm or the model's "
        "own); arguments follow a colon: groupnorm:num_groups=4; 'original' leaves a model as it is",
    )
    what.add_argument("--placement", nargs="+", metavar="NAME", help="where norms stand (pre-norm)")
    what.add_argument("--attention", nargs="+", metavar="NAME", help="attention cores (softmax)")
    what.add_argument("--linear", nargs="+", metavar="NAME", help="linear maps, as in the room of weights (linear)")
    what.add_argument("--optimizer", nargs="+", metavar="NAME", help="optimizers, the catalogue's and torch's (adamw)")
    what.add_argument("--variants", metavar="FILE", help="a YAML file instead: lists to cross, or 'variants', a list")
    what.add_argument("--baseline", metavar="NAME", help="the variant that others are tested against (the first)")
    on = command.add_argument_group("on what")
    on.add_argument(
        "--model",
        default="decoder",
        metavar="MODEL",
        help="decoder, vit, resnet, each with sizes: "
        "decoder:dim=128,depth=6; hf:PATH_OR_NAME, timm:NAME, module:factory (decoder)",
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
    on.add_argument("--batch", type=int, metavar="N", help="samples of a batch (16; images 64; a loader's own)")
    on.add_argument(
        "--length", type=int, default=Settings.length, metavar="N", help="tokens of a sequence (%(default)s)"
    )
    by = command.add_argument_group("by what, and how surely")
    by.add_argument(
        "--metric",
        metavar="NAME",
        help="what variants are compared by: loss, accuracy, or module:function, a function of the model and a list of "
        "held-out batches (loss)",
    )
    by.add_argument(
        "--metric-direction",
        choices=measures.DIRECTIONS,
        help="which values of a module:function are better (its attribute higher_is_better)",
    )
    by.add_argument(
        "--margin",
        type=float,
        default=Settings.margin,
        metavar="X",
        help="difference that counts as none, as a share of the baseline's measure (%(default)s)",
    )
    by.add_argument("--seeds", type=int, metavar="N", help=f"runs of each variant, from 1 ({Settings.seeds})")
    by.add_argument(
        "--until-decided",
        action="store_true",
        help=f"add seeds until each variant is better, worse or as good, --seeds at most ({MOST})",
    )
    by.add_argument(
        "--twin", action="store_true", help="also train the baseline from another start, to see what chance gives"
    )
    how = command.add_argument_group("how it is trained")
    how.add_argument("--steps", type=int, metavar="N", help=f"steps of a run ({Settings.steps})")
    how.add_argument("--seconds", type=float, metavar="S", help="instead of steps: seconds of training of a run")
    how.add_argument("--lr", nargs="+", type=float, metavar="X", help="learning rates to search; one: no search")
    how.add_argument(
        "--trials",
        type=int,
        default=Settings.trials,
        metavar="N",
        help="the most trials of each variant's search, a run each: three around the optimizer's usual rate, then "
        "further ones while the best is the lowest or highest (%(default)s); 1: no search",
    )
    for name, meaning in (
        ("warmup", "share of a run with a growing rate"),
        ("clip", "greatest gradient norm; 0: any"),
        ("weight_decay", "for matrices"),
    ):
        option, default = f"--{name.replace('_', '-')}", getattr(Settings, name)
        how.add_argument(option, type=float, default=default, metavar="X", help=f"{meaning} (%(default)s)")
    where = command.add_argument_group("where")
    where.add_argument(
        "--engine",
        default="local",
        choices=("local", "ray"),
        help="processes here, or Ray (local); under torchrun, its processes share each run",
    )
    where.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where to train (auto)")
    where.add_argument("--precision", default="no", choices=("no", "bf16", "fp16"), help="mixed precision (no)")
    where.add_argument("--sharded", action="store_true", help="under torchrun: FSDP2 instead of DDP")
    where.add_argument("--workers", type=int, metavar="N", help="runs side by side (one a core or GPU)")
    where.add_argument("--threads", type=int, metavar="N", help="threads of a run (the cores shared out)")
    where.add_argument("--out", default=WHERE, metavar="DIR", help=f"folder for logs and report ({WHERE})")
    where.add_argument("--fresh", action="store_true", help="delete the comparison that is there, and begin again")
    where.add_argument("--retry", action="store_true", help="run those again that crashed")


def run_compare(options: argparse.Namespace) -> int:
    """Train, go on where an earlier call stopped, and report."""
    require_group("lab")
    from normkit.lab.training import engines, runs

    plan = planned(options)
    largest = runs.check(plan)
    first = int(os.environ.get("RANK", "0")) == 0
    stops: list[int] = []
    try:
        with locked(options.out, first), stoppable(stops):
            with in_turn(plan.settings):
                folder = runs.open_folder(plan, options.out, ["normkit", *sys.argv[1:]], options.fresh and first)
            runs.require_space(folder, largest, plan.settings.workers)
            results = runs.ended(folder, plan, options.retry)
            with closing(engines.make(plan.settings, options.out)) as engine:
                train(plan, folder, results, engine, first)
            time_steps(plan, folder)
            return (reported(folder.root) or verdict(results)) if first else 0
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {options.out}", file=sys.stderr)
        return 128 + (stops or [signal.SIGINT])[0]
    except OSError as error:
        print(f"\nstopped: {error}; the same command goes on once this is mended", file=sys.stderr)
        return UNWRITABLE


def verdict(results: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the command's status: whether runs have crashed, and then say how many."""
    from normkit.lab import logs

    crashed = sorted(name for name, result in results.items() if result["status"] == logs.CRASHED)
    if crashed:
        rest = f" and {len(crashed) - SHOWN} more" if len(crashed) > SHOWN else ""
        print(
            f"{len(crashed)} of {len(results)} runs crashed: {', '.join(crashed[:SHOWN])}{rest}; the same command with "
            "--retry runs them again",
            file=sys.stderr,
        )
    return CRASHED if crashed else 0


@contextmanager
def stoppable(stops: list[int]) -> Iterator[None]:
    """Let a SIGTERM stop as Ctrl-C does, and take note of it."""

    def stop(number: int, frame: Any) -> None:
        stops.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def train(plan: Plan, folder: Any, results: dict, engine: Any, shown: bool) -> None:
    """Carry out the schedule, shown on the terminal by the first process."""
    from normkit.lab.screen import Screen
    from normkit.lab.training import runs

    screen = Screen(plan, folder, dict(results))
    if not shown:
        runs.conduct(plan, folder, engine, results, lambda run, result: None)
        return
    screen.introduce()
    with screen.live():
        runs.conduct(plan, folder, engine, results, screen.seen)


def time_steps(plan: Plan, folder: Any) -> None:
    """Time a step of all variants side by side, now that nothing trains; not where processes share a step."""
    from normkit.lab.report import page as report
    from normkit.lab.training import speed

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return
    try:
        speed.measure(plan, folder, [row.variant for row in report.summary(folder.root) if row.seeds])
    except RuntimeError as error:  # such as a GPU that is elsewhere, or has no room for two models
        print(f"steps could not be timed: {error}", file=sys.stderr)


def in_turn(settings: Settings) -> Any:
    """Under torchrun, let the first process go before the others."""
    from contextlib import nullcontext

    from accelerate import PartialState

    spread = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return PartialState(cpu=settings.device == "cpu").main_process_first() if spread else nullcontext()


def locked(root: str, first: bool) -> Any:
    """Keep a second comparison out of the folder."""
    from contextlib import nullcontext

    from filelock import FileLock, Timeout

    from normkit.lab.files import Folder

    if not first:
        return nullcontext()
    try:
        folder = Folder(root)
        folder.root.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.lock, timeout=0).acquire()
    except Timeout:
        raise ValueError(f"another normkit compare is at work in {root}; name another folder with --out") from None
    except OSError as error:
        where = error.filename or root
        raise ValueError(f"{where} cannot be written: {error.strerror}; name another folder with --out") from error


def planned(options: argparse.Namespace) -> Plan:
    """Turn the arguments into a plan."""
    from normkit.lab.plan.plan import Plan

    variants = chosen(options)
    names = [v.name for v in variants]
    baseline = options.baseline or names[0]
    if baseline not in names:
        raise ValueError(f"--baseline {baseline!r} is none of the variants: {', '.join(names)}")
    variants = with_twin(variants, baseline) if options.twin else variants
    return Plan(settled(options, len(variants)), variants, baseline)


def with_twin(variants: tuple[Variant, ...], baseline: str) -> tuple[Variant, ...]:
    """Add the baseline from a permuted start."""
    from dataclasses import replace

    from normkit.lab.plan.plan import TWIN, unique

    one = next(variant for variant in variants if variant.name == baseline)
    return unique([*variants, replace(one, name=TWIN, start="permuted")])


def chosen(options: argparse.Namespace) -> tuple[Variant, ...]:
    """Return the variants that were asked for, names checked."""
    from normkit import catalog
    from normkit.lab.plan import optimizers, plan, tasks
    from normkit.lab.plan.plan import Variant
    from normkit.residual.stream import wiring_of

    own = options.model.split(":")[0] not in tasks.BUILT_IN
    given = {key: getattr(options, key) for key in plan.CHOICES if getattr(options, key)}
    if options.variants and given:
        raise ValueError(f"--variants and --{next(iter(given))} exclude each other")
    if options.variants and not Path(options.variants).is_file():
        raise ValueError(f"--variants: there is no file {options.variants!r}")
    if not given:
        given = {"norm": ["original", *NORMS[:3]] if own else NORMS}
    elif own:
        given.setdefault("norm", ["original"])
    found = plan.read_variants(Path(options.variants)) if options.variants else plan.cross(**given)
    for variant in found:
        if variant.norm != "original":
            catalog.find(variant.norm)
        catalog.find(variant.attention)
        if variant.linear != Variant.linear:
            catalog.find(variant.linear)
        wiring_of("--placement", variant.placement)
        optimizers.optimizer_for(variant.optimizer)
    return found


def settled(options: argparse.Namespace, variants: int) -> Settings:
    """Return the settings, with what was left open decided."""
    from normkit.lab.plan import data, samples, tasks

    if options.steps and options.seconds:
        raise ValueError("--steps and --seconds exclude each other")
    for name, least in (
        ("steps", 1),
        ("seconds", 0),
        ("batch", 1),
        ("length", 1),
        ("seeds", 1),
        ("margin", 0),
        ("trials", 1),
        ("clip", 0),
        ("weight_decay", 0),
        ("workers", 1),
        ("threads", 1),
    ):
        given = getattr(options, name)
        if given is not None and not given >= least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, not {given}")
    if not 0 <= options.warmup < 1:
        raise ValueError(f"--warmup is a share of the run, from 0 to below 1, not {options.warmup}")
    if options.lr and not all(lr > 0 for lr in options.lr):
        raise ValueError(f"--lr must be above 0, not {min(options.lr)}")
    source = options.data or tasks.default_data(options.model)
    steps = None if options.seconds else options.steps or Settings.steps
    every = max(1, (steps or 100) // 40)
    device = device_for(options.device)
    workers, threads = places(options, device, variants)
    return Settings(
        model=options.model,
        data=source,
        val=options.val,
        steps=steps,
        seconds=options.seconds,
        batch=options.batch or {"images": tasks.IMAGES, "batches": None}.get(data.kind_of(source), samples.BATCH),
        length=options.length,
        seeds=seeds_of(options),
        lrs=tuple(options.lr) if options.lr else None,
        trials=options.trials,
        metric=options.metric,
        higher=direction(options),
        margin=options.margin,
        until_decided=options.until_decided,
        warmup=options.warmup,
        clip=options.clip,
        weight_decay=options.weight_decay,
        device=device,
        precision=options.precision,
        engine=options.engine,
        workers=workers,
        threads=threads,
        sharded=options.sharded,
        log_every=every,
        eval_every=5 * every,
        probe_every=5 * every,
    )


def seeds_of(options: argparse.Namespace) -> int:
    """Return how many seeds there may be: more where they go on until it is decided."""
    return options.seeds or (MOST if options.until_decided else Settings.seeds)


def direction(options: argparse.Namespace) -> bool:
    """Return whether more of the measure is better."""
    if options.metric is None and options.metric_direction is not None:
        raise ValueError("--metric-direction is of a measure of your own; name it with --metric module:function")
    return measures.is_higher_better(options.metric or measures.LOSS, options.metric_direction)


def device_for(wanted: str) -> str:
    """Return the device, or say that there is no GPU."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no GPU here; leave it out, or give --device cpu")
    return wanted if wanted != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def places(options: argparse.Namespace, device: str, variants: int) -> tuple[int, int]:
    """Return how many runs go on side by side, and the threads of each.

    On a CPU, one run a core: small models gain little from a second thread. A resumed comparison keeps its
    threads, since the last digits of a sum depend on them. Under torchrun, no workers: its processes share each run.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    spread = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if options.sharded and not spread:
        raise ValueError(
            "--sharded spreads a model over processes; start them with: torchrun --nproc-per-node 2 -m normkit.cli ..."
        )
    room = torch.cuda.device_count() if device == "cuda" else cores
    workers = options.workers or max(1, min(room, variants * seeds_of(options)))
    kept = None if options.fresh else kept_threads(options.out)
    threads = options.threads or kept or max(1, cores // (int(os.environ["WORLD_SIZE"]) if spread else workers))
    return (0 if spread else workers), threads


def kept_threads(root: str) -> int | None:
    """Return the threads of the comparison that is there."""
    from normkit.lab.files import Folder
    from normkit.lab.training import runs

    there = runs.plan_there(Folder(root))
    return there["settings"].get("threads") if there else None


def run_report(options: argparse.Namespace) -> int:
    """Make the report again."""
    require_group("lab")
    from normkit.lab.files import Folder

    folder = Folder(options.folder)
    if not folder.plan.is_file():
        raise ValueError(f"{folder.root} holds no comparison: there is no {folder.plan}; 'normkit compare' makes one")
    try:
        return reported(folder.root)
    except OSError as error:
        raise ValueError(str(error)) from error


def reported(folder: Path) -> int:
    """Write the report, print the ranked table."""
    from rich.console import Console

    from normkit.lab.report import page as report

    rows = report.summary(folder)
    console = Console(highlight=False)
    console.print(report.rich_table(rows) if console.is_terminal else report.table(rows), soft_wrap=True)
    console.print(f"{report.headline(rows)}.", markup=False, style="bold")
    for sentence in report.answer(rows):
        console.print(sentence, markup=False)
    console.print(f"report: {report.write(folder)}", markup=False, soft_wrap=True)
    return 0
