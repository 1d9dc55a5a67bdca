"""The command line: ``normkit compare``, ``report``, ``list``, ``show``, ``check``, ``bench`` and others.

Each command is described, and what it needs imported, when it is the one that was typed.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import normkit
from normkit.columns import number_of
from normkit.files import Unwritable, name_replaced, require_writable
from normkit.lab import cli as lab
from normkit.lab.plan.variants import SLOTS
from normkit.loading import find_in_current_folder
from normkit.optional import library, uncollected
from normkit.safe import Unprinted, printing, say

if TYPE_CHECKING:
    from normkit.catalog import Card

SURGERY = {
    "fold": "Fold norms into the layers beside them: the same numbers with fewer layers, proven or refused.",
    "fuse": "Put faster norms where a model has the same: each kind of site is timed.",
    "swap": "Put other norms where a model's are, found by what they compute.",
    "convert": "Turn a pre-norm transformer's layer norms into RMS norms, exactly: proven or refused.",
    "remove": "Take the layer norms out of a pre-norm transformer, while it is fine-tuned, and tell what that costs.",
    "average": "Average aligned networks, and with data give the average the activations' statistics of its parents.",
    "recalibrate": "Estimate a model's batch statistics anew, from one pass over data.",
    "adapt": "Adapt a model at test time: by a method that learns from a stream, such as tent, or by batch norms that "
    "mix their statistics with those of the batch at hand.",
}
QUANTIZE = """Put the weights of a model's linears on grids of few bits, each as many or as a budget allots, and tell
what that takes and costs. nk.load reads the folder that -o names."""
BRIEF = {"list", "show", "recognize"}  # importing is the most of them: no garbage is looked for
LIST = "List the methods, one line each."
SHOW = "Describe one method."
CHECK = "Hold methods, your own too, to what every method of the catalogue keeps. It needs pytest."
RECOGNIZE = """Find the norms of a model by what they compute, whatever they are called, and tell each as a method of
the catalogue with its arguments. Weights are read from safetensors only, and of timm by a name with a tag."""
INSPECT = """Look at a model by a few passes forward and backward: a table of its blocks' health, and what is wrong with
it, each with a remedy. The model's weights are read from safetensors only, and stay as they are. With --widths it is
built anew at each width and trained for a few steps, to see whether activations change alike at all of them: with one
learning rate for all, and with those of muP."""
WATCH = """Show a training that is going on, or one that has ended: where it is, what goes wrong, and the health of its
blocks, read from what nk.watch(..., to=DIR) writes. Ctrl-C leaves; the training does not notice."""
READY = """Say what an exact rewriting of a model needs and what stands in its way: a rotation of its residual stream,
four-bit numbers behind Hadamard matrices, no norms, or latent attention that reads its cache. Each yes was done on a
copy, whose outputs in float64 were the same to 1e-9."""
DOCTOR = "Tell which versions are installed, which kernels run, and why the others do not."


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which is described no sooner than it parses."""

    describe: Callable[[Parser], None] | None = None
    commands: Mapping[str, Parser] = {}

    def described(self) -> Parser:
        """Add the arguments, the first time that they are needed."""
        describe, self.describe = self.describe, None
        if describe is not None:
            describe(self)
        return self

    def parse_known_args(self, args=None, namespace=None):
        """Take arguments."""
        return super(Parser, self.described()).parse_known_args(args, namespace)

    def of(self, options: argparse.Namespace) -> Parser:
        """Return the parser of the command, or of its step, that was typed."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and getattr(options, action.dest, None):
                return action.choices[getattr(options, action.dest)].of(options)
        return self

    def find_flags(self, options: argparse.Namespace, *names: str) -> list[str]:
        """Return those of the options that are not as they are by default, in the form that is typed."""
        changed = (name for name in names if getattr(options, name) != self.get_default(name))
        return [f"--{name.replace('_', '-')}" for name in changed]

    def refuse(self, unknown: Sequence[str]):
        """Say what is not known of what was typed, and what it may be meant for."""
        known = [word for action in self._actions for word in action.option_strings if len(word) > 2]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1, 0.75)
        hint = f"did you mean {near[0]}?" if near else f"'{self.prog} -h' shows all arguments"
        if "--norm" in known and not any(word.startswith("-") for word in unknown):
            hint = f"did you mean --norm {' '.join(unknown)}?"
        self.error(f"does not take {' '.join(unknown)}; {hint}")

    def error(self, message: str):
        """Say what is wrong, and leave with status 2."""
        wrong = re.match(r"argument (COMMAND|STEP): invalid choice: '([^']*)'", message)
        if wrong:
            known = next(a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction))
            near = difflib.get_close_matches(wrong[2], known)
            message = f"no {wrong[1].lower()} {wrong[2]!r}; " + (
                f"did you mean {near[0]!r}?" if near else f"'{self.prog} -h' shows all"
            )
        self.exit(2, f"{self.prog}: {message}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; ``words`` are what was typed after ``normkit``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as a shell's `>&-` does
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe that is not UTF-8 has no sign for each
    try:
        try:
            with uncollected():
                return answer(words)
        finally:
            with printing():
                sys.stdout.flush()  # not when Python ends, where a reader that has left would be an error
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Unprinted as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with contextlib.suppress(OSError):  # of a standard error on the same disk
            say(f"normkit: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich has noticed it, and leaves with status 1
            return 0
        raise


def answer(words: Sequence[str] | None) -> int:
    """Run one command; a refusal is one line."""
    find_in_current_folder()  # a method or model of the user's
    top = parser()
    if "_ARGCOMPLETE" in os.environ:
        complete(top)
    options, unknown = top.parse_known_args(words)
    options.parser = top.of(options)
    if unknown:
        options.parser.refuse(unknown)
    if options.command is None:
        top.print_help()
        return 0
    before = warnings.formatwarning

    def of_ours(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        own = Path(filename).is_relative_to(Path(__file__).parent)
        return f"normkit {options.command}: {message}\n" if own else before(message, category, filename, lineno, line)

    warnings.formatwarning = of_ours
    try:
        if options.command not in BRIEF:
            gc.enable()
        return options.run(options)
    except (ValueError, TypeError, Unwritable) as error:
        say(f"normkit {options.command}: {str(error).removeprefix(f'{options.command}: ')}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = before


def parser() -> Parser:
    """Name all commands."""
    top = Parser("normkit", description="Every normalization method of deep learning in one place.")
    top.add_argument("-V", "--version", action="version", version=f"normkit {normkit.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, does: str, describe: Callable[[Parser], None], description: str | None = None) -> None:
        commands.add_parser(name, help=does, description=description).describe = describe

    add("list", "list the methods", describe_list, LIST)
    add("show", "describe one method", describe_show, SHOW)
    add("bench", "time methods on this machine", elsewhere("bench"))
    add("claim", "test what papers claim of their methods", elsewhere("claims.commands"))
    add("check", "test methods, your own too, against the contract", describe_check, CHECK)
    lab.add_commands(commands)
    add("fit", "fit densities to a table or images", elsewhere("lab.fit.run"))
    add(
        "recognize",
        "find a model's norms by what they compute",
        elsewhere("surgery.commands", "add_recognized"),
        RECOGNIZE,
    )
    for name, text in SURGERY.items():
        does = text.partition(",")[0].partition(":")[0]
        add(name, does[0].lower() + does[1:], elsewhere("surgery.commands", "add_arguments", name), text)
    add("quantize", "put the weights of linears in few bits", elsewhere("surgery.quantizing.command"), QUANTIZE)
    add("ready", "show what an exact rewriting of a model would need", elsewhere("surgery.exact.readying"), READY)
    add("inspect", "show how healthy a model is", describe_inspect, INSPECT)
    add("doctor", "show what is installed, or what to mend in a model", describe_doctor, DOCTOR)
    add("watch", "show a training as it goes on", describe_watch, WATCH)
    add("rerank", "retrieve with normalized scores between two tables of vectors", elsewhere("lab.rerank"))
    add("text", "bring texts, columns and tables to their normal form", elsewhere("text.commands", "add_commands"))
    top.commands = commands.choices
    return top


def elsewhere(module: str, add: str = "add_arguments", *words: str) -> Callable[[Parser], None]:
    """Return what describes a command by a module of its own, which is imported once that command is typed."""

    def describe(command: Parser) -> None:
        home = importlib.import_module(f"normkit.{module}")
        command.description = command.description or home.__doc__
        getattr(home, add)(command, *words)

    return describe


def complete(top: Parser) -> None:
    """Answer a shell that asks what may be typed next, and leave."""
    argcomplete = library("argcomplete")
    for word in os.environ["COMP_LINE"].split():
        if word in top.commands:
            top.commands[word].described()

    def possible(prefix: str, action: argparse.Action, **_: Any) -> Sequence[str]:
        from normkit import catalog

        named = action.dest in ("name", "names", *SLOTS)
        return catalog.methods() if named else argcomplete.FilesCompleter()(prefix)

    argcomplete.autocomplete(top, default_completer=possible)


def describe_list(command: Parser) -> None:
    """Describe ``normkit list``."""
    from normkit import catalog, families

    command.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="a name or part of one, * fits all")
    command.add_argument("--kind", metavar="KIND", help=f"only this kind: norm, loss ...; {', '.join(families.KINDS)}")
    command.add_argument("--room", metavar="ROOM", help=f"only this room: {', '.join(catalog.rooms())}")
    command.add_argument("--group", metavar="GROUP", help="only this group of a room, such as token")
    command.add_argument(
        "--fits", metavar="MODEL", help="only norms that fit decoder, vit, resnet, or a model as 'compare' takes it"
    )
    command.add_argument("--json", action="store_true", help="print the cards as JSON")
    command.set_defaults(run=run_list)


def run_list(options: argparse.Namespace) -> int:
    """List the methods, or those that fit a model."""
    from normkit import describe

    return describe.run_list(options, fitting(options.fits) if options.fits else None)


def fitting(model: str) -> Callable[[list[Card]], list[Card]]:
    """Return a function that picks the norms which stand in a model."""
    from normkit.lab.plan import tasks
    from normkit.surgery.replacement import fits

    places = tasks.places(model)
    if not places:  # else all would fit, optimizers too
        raise ValueError(f"--fits: {model!r} has no norm in whose place another could stand")
    return lambda cards: fits.fitting(cards, places)


def describe_show(command: Parser) -> None:
    """Describe ``normkit show``."""
    command.add_argument("name", metavar="NAME", help="a name as 'normkit list' prints it")
    command.add_argument("--kind", metavar="KIND", help="what it is, where a name means several: flow, sampler ...")
    command.add_argument("--json", action="store_true", help="print the description as JSON")
    command.set_defaults(run=run_show)


def run_show(options: argparse.Namespace) -> int:
    """Describe one method, with the verdicts on what its paper claims."""
    from normkit import describe
    from normkit.claims import pages

    return describe.run_show(options, pages.line)


def describe_check(command: Parser) -> None:
    """Describe ``normkit check``."""
    command.add_argument("names", nargs="+", metavar="NAME", help="a name, my_package.my_norm of yours, or my_package")
    command.add_argument(
        "-k", dest="only", default="", metavar="WORDS", help="only tests whose names fit, as pytest's -k"
    )
    command.set_defaults(run=run_check)


BATCHES = "module:loader, or digits, mnist1d, spd or python-docs"


def describe_doctor(command: Parser) -> None:
    """Describe ``normkit doctor``."""
    command.add_argument(
        "model", nargs="?", metavar="MODEL", help="look at a model before a long training, named as for 'inspect'"
    )
    command.add_argument("--data", metavar="DATA", help=f"batches of the training: {BATCHES}")
    command.add_argument(
        "--loss",
        metavar="LOSS",
        help="package.module:function of what the model gives and the batch; else its own, or "
        "that of the batch's classes, numbers or next tokens",
    )
    command.add_argument("--rate", type=float, metavar="RATE", help="the learning rate that is planned")
    command.add_argument("--seconds", type=float, default=60.0, metavar="S", help="about how long it may take (60)")
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--build",
        action="store_true",
        help="first build what makes trainings on small inputs faster, by a C++ compiler",
    )
    command.set_defaults(run=run_doctor)


def describe_inspect(command: Parser) -> None:
    """Describe ``normkit inspect``."""
    command.add_argument(
        "model", metavar="MODEL", help="a folder or hub name of transformers, timm:NAME.TAG, module:factory"
    )
    command.add_argument("--data", metavar="DATA", help=f"what it is fed: {BATCHES} (random numbers)")
    command.add_argument("--passes", type=int, default=2, metavar="N", help="how many batches are taken (%(default)s)")
    command.add_argument("--json", action="store_true", help="print the diagnosis as JSON")
    own = command.add_argument_group("the coordinate check")
    own.add_argument("--widths", metavar="N,N,...", help="build it at these widths; module:factory is called with each")
    own.add_argument(
        "--parametrization",
        choices=("mup", "spectral", "standard"),
        default="mup",
        help="what is held against the standard parametrization (%(default)s)",
    )
    own.add_argument("--optimizer", default="adamw", metavar="NAME", help="of the catalogue or of torch (%(default)s)")
    own.add_argument("--lr", type=float, metavar="RATE", help="at the smallest width (the optimizer's usual one)")
    own.add_argument("--steps", type=int, default=4, metavar="N", help="how many (%(default)s)")
    own.add_argument("--seeds", type=int, default=2, metavar="N", help="models of each width (%(default)s)")
    own.add_argument("--plot", metavar="FILE", help="draw it: .html, .svg, .png or .pdf")
    command.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> int:
    """Print how healthy a model is; 1 where something is wrong."""
    from normkit.surgery import saving
    from normkit.watching import inspecting

    given = options.parser.find_flags(options, "parametrization", "optimizer", "lr", "steps", "seeds", "plot")
    if given and not options.widths:
        raise ValueError(f"{' and '.join(given)} {'go' if len(given) > 1 else 'goes'} with --widths")
    if options.widths and options.parser.find_flags(options, "passes"):
        raise ValueError("--passes goes without --widths, where one batch is taken")
    batches = batches_by_name(options.data) if options.data else None
    if options.widths:
        return run_widths(options, batches)
    inspection = inspecting.inspect(saving.load(options.model), batches, passes=options.passes)
    diagnosis = inspection.diagnosis()
    say(json.dumps(diagnosis.to_dict(), indent=2) if options.json else inspection)
    return 1 if diagnosis else 0


def run_widths(options: argparse.Namespace, batches: Any) -> int:
    """Print how far activations change at several widths; 1 where it depends on the width."""
    from normkit.watching import drawn, widths

    if options.plot:
        path = drawn.require_form("--plot", options.plot)
        require_writable(path)
    report = widths.coordinate_check(
        widths.builder(options.model),
        widths.widths_of(options.widths),
        parametrization=options.parametrization,
        optimizer=options.optimizer,
        lr=options.lr,
        steps=options.steps,
        seeds=options.seeds,
        batches=batches,
    )
    say(json.dumps(report.to_dict(), indent=2) if options.json else report)
    if options.plot:
        over = name_replaced(path)
        say(f"wrote {report.plot(path)}{over}", file=sys.stderr)
    return 0 if report.flat(options.parametrization) else 1


def describe_watch(command: Parser) -> None:
    """Describe ``normkit watch``."""
    command.add_argument("place", metavar="DIR", help="a folder that watches write to, or one file of theirs")
    command.add_argument("--once", action="store_true", help="print how it stands now, and end")
    command.set_defaults(run=run_watch)


def run_watch(options: argparse.Namespace) -> int:
    """Show a run; 1 where something is wrong with it."""
    from normkit.watching import live

    return 1 if live.follow(options.place, options.once) else 0


def run_check(options: argparse.Namespace) -> int:
    """Run the contract's tests on what is named."""
    from normkit.contract import VERSION, asked

    pytest = library("pytest")
    from normkit.contract.goldens import places  # which need it
    from normkit.contract.plugin import Ends

    ends, folder = Ends(), Path(__file__).with_name("contract")
    os.environ[asked.ASKED] = ",".join(options.names)
    things = {name: (kind, asked.described(kind, name)) for kind, name in asked.things(os.environ[asked.ASKED])}
    words = [str(folder), f"--rootdir={folder}", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--tb=short"]
    failed = pytest.main([*words, "-k", options.only], [ends])
    nothing = f"nothing was tested: no test ran that fits -k {options.only!r}"
    if failed in (0, pytest.ExitCode.NO_TESTS_COLLECTED) and not ends.passed.total():
        raise ValueError(nothing)
    whole = failed and (not ends.broken or None in ends.broken)
    passed = ends.passed if len(things) > 1 else {name: ends.passed.total() for name in things}
    untested = [name for name in things if not (whole or name in ends.broken or passed[name])]
    for name, (_, (kind, plain)) in things.items():
        if name in untested:
            say(f"{plain}: {nothing}")
            continue
        tests = number_of(passed[name], "test")
        part = f", in the {tests} that -k chose and that passed" if options.only else ""
        verb, where = ("breaks", "") if whole or name in ends.broken else ("keeps", part)
        say(f"{plain} {verb} the contract of {'an' if kind[0] in 'aeiou' else 'a'} {kind}, version {VERSION}{where}")
    for name, (kind, (_, plain)) in things.items():
        if (module := places.foreign(name, kind)) and not places.cases(name, module):
            say(f"{plain} has no golden beside {module}; docs/adding.md tells how to record one")
    return 1 if failed or untested else 0


def run_doctor(options: argparse.Namespace) -> int:
    """Print the state of this installation, or of a model before its training."""
    from normkit import describe, doctor

    if options.model is not None:
        return run_checkup(options)
    if options.data or options.loss or options.rate is not None:
        raise ValueError("--data, --loss and --rate are of a training: name its MODEL")
    if options.build and (why := doctor.build()):
        raise ValueError(f"--build: autograd's node cannot be built: {why}")
    facts = doctor.examine()
    rows = [(label, str(value)) for label, value in facts.items()]
    say(json.dumps(facts, indent=2) if options.json else "\n".join(describe.table(rows)))
    return 0


def batches_by_name(word: str) -> Iterable[Any]:
    """Return batches of built-in data by its name, or of ``module:loader``."""
    from normkit.lab.plan.data import own_batches
    from normkit.watching.inspecting import batches_of

    own = own_batches(word)
    return batches_of(word) if own is None else own


def run_checkup(options: argparse.Namespace) -> int:
    """Print what to mend in a model before it is trained; 1 where there is something, or nothing was looked at."""
    from normkit.surgery import models, saving
    from normkit.watching.checkup import checkup

    if options.build:
        raise ValueError("--build goes without a MODEL")
    if options.data is None:
        raise ValueError("a model is looked at on the batches of its training: name them, --data module:loader")
    model, batches = saving.load(options.model), batches_by_name(options.data)
    loss = models.import_object(options.loss, "loss") if options.loss else None
    report = checkup(model, batches, loss=loss, rate=options.rate, seconds=options.seconds)
    say(json.dumps(report.to_dict(), indent=2) if options.json else report)
    return 1 if report.mend or not report.history.steps else 0


if __name__ == "__main__":
    sys.exit(main())
