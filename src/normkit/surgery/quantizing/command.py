"""``normkit quantize``: a model's weights in few bits, from the command line."""

from __future__ import annotations

import argparse
import json
import sys

from normkit.safe import say
from normkit.surgery import models, saving
from normkit.surgery.commands import batches
from normkit.surgery.quantizing.weights import AUTO, LEARNED, METHODS, quantize

__all__ = ["add_arguments", "run"]

TAKEN = ("method", "bits", "budget", "group", "steps", "parallel", "pack", "where")


def width(text: str) -> int | str:
    """Return bits as they are typed: a number, or "auto"."""
    return text if text == AUTO else int(text)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe the command."""
    command.add_argument("model", metavar="MODEL", help=models.FORMS)
    command.add_argument("--method", choices=METHODS, default=METHODS[0], help=f"how weights are set ({METHODS[0]})")
    command.add_argument("--bits", type=width, default=4, metavar="N", help="of a number, 2 to 8, or auto (4)")
    command.add_argument("--budget", metavar="SIZE", help="with --bits auto: '4.5 bits' of a number, or '300 kB'")
    command.add_argument("--group", type=int, metavar="N", help="inputs that share a grid (all of a row)")
    command.add_argument("--data", metavar="DATA", help="module:name, batches for what is learned or allocated")
    command.add_argument("--held", metavar="DATA", help="module:name, batches of tokens to take perplexity on")
    command.add_argument("--steps", type=int, default=500, help="of learned rounding and AdaQuant (500)")
    command.add_argument("--parallel", action="store_true", help="learn on the float model's inputs of each layer")
    command.add_argument("--pack", action="store_true", help="two numbers of 4 bits in a byte, for torchao's kernel")
    command.add_argument("--where", metavar="PATTERN", help="only linears whose name fits, such as '*.attn.*'")
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument("-o", "--out", "--output", metavar="OUT", help="write the changed model into this new folder")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Quantize a model, and print what that took and cost."""
    given = options.parser.find_flags(options, "steps", "parallel")
    if given and not options.method.startswith(LEARNED):
        raise ValueError(f"only --method {' or '.join(LEARNED)} takes {' and '.join(given)}")
    if options.out:
        saving.new_folder(options.out)  # before anything is learned
    model = saving.load(options.model).eval()
    report = quantize(
        model,
        () if options.data is None else batches(options.data),
        held=None if options.held is None else batches(options.held),
        **{name: getattr(options, name) for name in TAKEN},
    )
    say(json.dumps(report.to_dict(), indent=2) if options.json else report)
    if options.out:
        say(f"written to {saving.save(model, report.model, options.out)}", file=sys.stderr)
    return 0
