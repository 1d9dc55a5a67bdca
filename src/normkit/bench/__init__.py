"""Time methods against what else computes them on this machine.

The entrants run in turn, A B C B C A, so that a slow second of the machine falls on all alike: normkit as a user
gets it; PyTorch's own module for the same numbers, where there is one; torch's LayerNorm; the formula in plain PyTorch;
the formula under torch.compile; and a plain copy of the input, which no method can beat. Inputs, sizes and peers come
from the cards. All methods of one vector (the default) take a few minutes on two idle cores.

With --room residual whole decoders train instead, with the placements named (pre-norm, peri-norm and mhc by default),
beside the same of transformers and x-transformers. With --room attention every core runs at growing lengths, and the
table tells what its time and memory grow by, and from which length a linear one overtakes softmax. With --room text
normalizers are measured on names of countries and cities. With --room inference, quant or federated the table tells
what each takes beside a matrix product, groups of four bits, or reading and writing the states, and which goal is
missed.

With --device cuda the Triton kernels run on a GPU: first their numbers, then their times, forward and backward apart,
beside the formula, torch's own, Liger and quack where they are installed, and a copy. Please send in the file that
--json writes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from normkit import catalog, files
from normkit.bench import cases, cost, report, timing
from normkit.bench.cases import Case
from normkit.catalog import Card
from normkit.ops import eager, node
from normkit.threads import threads

OF_STUDIES = ("sizes", "dtypes", "forward", "quick", "no_compile")  # options that not every study takes


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe ``normkit bench`` on the command line."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("names", nargs="*", metavar="NAME", help="methods to time (default: the room or group chosen)")
    command.add_argument("--room", metavar="ROOM", help=f"all methods of a room: {', '.join(catalog.rooms())}")
    command.add_argument("--group", metavar="GROUP", help="all methods of a group (default: token)")
    command.add_argument(
        "--sizes",
        metavar="LIST",
        help="shapes of the input, such as 256x768,4096x768 or 32x64x56x56; of decoders, batch x length x width; of "
        "attention, tokens",
    )
    command.add_argument(
        "--device",
        choices=("cpu", "cuda", "interpreter"),
        default="cpu",
        help="cuda: the Triton kernels on a GPU, their numbers first; interpreter: the same here, to see that it works",
    )
    command.add_argument(
        "--static",
        action="store_true",
        help="with --device cuda: what the kernels' machine code is made of; no GPU needed",
    )
    command.add_argument(
        "--targets",
        metavar="LIST",
        help="GPUs of --static: of sm_80, sm_90, sm_100 and gfx942 (default: sm_90,gfx942)",
    )
    command.add_argument(
        "--vocab",
        type=int,
        metavar="N",
        help="tokens of decoders (default: GPT-2's 50257, in the room of weights 4096)",
    )
    command.add_argument(
        "--dtypes",
        metavar="LIST",
        help=f"of {', '.join(cases.DTYPES)} (default: float32,bfloat16; of decoders and attention, float32)",
    )
    _add_measuring(command)
    command.set_defaults(run=run)


def _add_measuring(command: argparse.ArgumentParser) -> None:
    """Describe how is timed, and where the table goes."""
    command.add_argument(
        "--repeats", type=int, default=15, metavar="N", help="rounds of each race, fewer if slow (default: 15)"
    )
    command.add_argument("--forward", action="store_true", help="the forward pass only")
    command.add_argument(
        "--quick",
        action="store_true",
        help="one size of each in float32 and one layout, 5 rounds, without torch.compile: a whole room in minutes",
    )
    command.add_argument(
        "--cpu-time", action="store_true", help="measure the processor's time on one thread, where other work runs too"
    )
    command.add_argument("--no-compile", action="store_true", help="leave out torch.compile, the slowest to prepare")
    command.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    command.add_argument("--json", metavar="FILE", type=Path, help="also write everything measured, as JSON")
    command.add_argument("--csv", metavar="FILE", type=Path, help="also write the table as CSV")


def run(options: argparse.Namespace) -> int:
    """Race, print the table, write the files."""
    if options.repeats < 1:
        raise ValueError(f"--repeats must be at least 1, not {options.repeats}")
    for file in filter(None, [options.json, options.csv]):
        files.require_writable(file)
    study = find_study(options)
    races = line_up(options) if study is None else []
    if races and not options.forward:
        make_node()
    with threads(1) if options.cpu_time else contextlib.nullcontext():
        record = measure_all(options, study, races)
    table = {} if study is None else {"columns": study.COLUMNS, "meanings": study.LEGEND}
    print((report.markdown if options.markdown else report.text)(record, **table), flush=True)
    if options.json:
        keep(options.json, record)
    if options.csv:
        files.replace_file(options.csv, report.csv_text(record["rows"]))
    return 0


def make_node() -> None:
    """Build autograd's node where there is none; without a compiler small trainings are timed as they then are."""
    if eager.node is None and node.usable() is None and node.obstacle() is None:
        print("Building what makes small trainings faster, once for this torch (some 20 s) ...", file=sys.stderr)
        if why := eager.build_node():
            print(f"It cannot be built: {why}", file=sys.stderr)


def measure_all(options: argparse.Namespace, study: ModuleType | None, races: list[Case]) -> dict[str, Any]:
    """Return what a study measures, or the races, with the machine and the clock that it was measured by."""
    clock = time.process_time if options.cpu_time else time.perf_counter
    where = {**report.machine(), "clock": clock.__name__}
    if study is not None:
        return {"machine": where, **study.measure(options, clock)}
    rounds = min(options.repeats, timing.FEWEST) if options.quick else options.repeats
    compile = not (options.no_compile or options.quick)

    def hold(races: dict[str, Any]) -> None:
        if options.json:
            keep(options.json, {"machine": where, **races})

    return {"machine": where, **measure(races, rounds, compile, clock, hold)}


def keep(file: Path, record: dict[str, Any]) -> None:
    """Write a record, never half."""
    files.replace_file(file, json.dumps(record, indent=1) + "\n")


def find_study(options: argparse.Namespace) -> ModuleType | None:
    """Return the module that measures a room in its own way, or None where single methods race.

    It is the one of the room's name, for rooms whose methods say little alone. It has ``measure``, which takes the
    options and a clock and returns rows, ``COLUMNS`` of their table, and a ``LEGEND`` of what these mean. ``TAKES``
    names the options that have an effect on it, of names and :data:`OF_STUDIES`.
    """
    if options.static and options.device != "cuda":
        raise ValueError("--static is of the GPU's kernels: it needs --device cuda")
    if options.targets is not None and not options.static:
        raise ValueError("--targets goes with --static")
    if options.vocab is not None and options.room not in ("gradient", "residual", "weight"):
        raise ValueError("--vocab is of decoders: --room gradient, residual or weight trains some")
    if options.device != "cpu":
        study = importlib.import_module("normkit.bench.gpu")
        return _require_effects(options, study, f"--device {options.device}", "room", "group")
    own = options.room in catalog.rooms() and not options.group
    name = f"normkit.bench.{options.room}"
    if not own or importlib.util.find_spec(name) is None:
        return None
    return _require_effects(options, importlib.import_module(name), f"--room {options.room}")


def _require_effects(options: argparse.Namespace, study: ModuleType, way: str, *unused: str) -> ModuleType:
    """Refuse what a study does not look at."""
    if options.names and "names" not in study.TAKES:
        raise ValueError(f"{way} is measured as a whole: leave out {' '.join(options.names)}")
    unused += tuple(name for name in OF_STUDIES if name not in study.TAKES)
    if typed := options.parser.find_flags(options, *unused):
        raise ValueError(f"{way} takes no {' and no '.join(typed)}")
    return study


def line_up(options: argparse.Namespace) -> list[Case]:
    """Return the races that the options ask for."""
    cards = choose(options.names, options.room, options.group)
    sizes = cases.sizes(options.sizes) if options.sizes else None
    passes = ("forward",) if options.forward else cases.PASSES
    types = cases.dtypes(options.dtypes or ("float32" if options.quick else "float32,bfloat16"))
    races = cases.cases(cards, sizes, types, passes)
    if options.quick:
        races = cases.one_size(races)
    if not races:
        raise ValueError(f"no method chosen takes an input of size {options.sizes}")
    for card in cards:
        if all(case.card is not card for case in races):
            print(f"{card.name} takes ({card.shape}), so none of the sizes fits it", file=sys.stderr)
    return races


def choose(names: list[str], room: str | None, group: str | None) -> list[Card]:
    """Return the cards named, or those of modules in the room and group, or those of one vector."""
    if names:
        cards = [catalog.card(name) for name in names]
        for card in cards:
            for what, wanted, own in (("room", room, card.room), ("group", group, card.group)):
                if wanted not in (None, own):
                    raise ValueError(f"{card.name} is not of the {what} {wanted}")
            if not is_module(card):
                raise ValueError(
                    f"{card.name} is of the kind {card.kind.name}, and only modules race alone{study_of(card)}"
                )
        return cards
    members = map(catalog.card, catalog.methods(room=room, group=group if room or group else "token"))
    cards = [card for card in members if is_module(card)]
    if not cards:
        raise ValueError(f"the room {room} has no module, and only modules race alone")
    return cards


def is_module(card: Card) -> bool:
    """Whether a method is a module, which can be called by itself."""
    return isinstance(card.entry, type) and issubclass(card.entry, nn.Module)


def study_of(card: Card) -> str:
    """Name the study of a method's room, if there is one."""
    if importlib.util.find_spec(f"normkit.bench.{card.room}") is None:
        return ""
    return f"; normkit bench --room {card.room} is a study of its room"


def measure(
    lined_up: list[Case],
    repeats: int,
    compile: bool,
    clock: timing.Clock = time.perf_counter,
    hold: Callable[[dict[str, Any]], None] = lambda races: None,
) -> dict[str, Any]:
    """Run the races one after the other, telling on stderr how far they are; ``hold`` gets all so far after each."""
    rows, failed = [], {}
    for index, case in enumerate(lined_up, 1):
        print(f"[{index}/{len(lined_up)}] {case}", file=sys.stderr)
        try:
            rows.append(cases.run(case, repeats, compile, clock))
        except (ValueError, TypeError, RuntimeError) as error:
            failed[str(case)] = str(error).split("\n")[0]
        except KeyboardInterrupt:
            print("stopped; here is what was measured before", file=sys.stderr)
            break
        hold({"rows": rows, "failed": failed})
    return {"rows": rows, "failed": failed, "first_seconds": cost.first_seconds()}
