"""``normkit fold`` and its like: what is done to a model by a word, printed, and written."""

from __future__ import annotations

import argparse
import copy
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.parameters import copy_model
from normkit.safe import say
from normkit.surgery import models, proof, saving
from normkit.surgery.edits import replace_parts
from normkit.surgery.edits.changes import Report
from normkit.surgery.exact.converting import TARGETS, convert
from normkit.surgery.exact.folding import fold
from normkit.surgery.exact.fusing import fuse
from normkit.surgery.recognition.recognize import Recognized, table
from normkit.surgery.removal.removing import example_of, remove
from normkit.surgery.replacement.swapping import swap
from normkit.surgery.statistics.adapting import adapt
from normkit.surgery.statistics.batch_statistics import recalibrate
from normkit.surgery.statistics.repair import VARIANTS, average
from normkit.surgery.statistics.streaming import run_stream

CLOSE = 1e-4  # of the largest number: how far a model that was written may be off when it is read again
TOKENS = (2, 16)
NOTHING = "it has no norm to change"


def option(*names: str, **given: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the arguments of ``add_argument`` for an option."""
    return names, given


WHERE = option("--where", metavar="PATTERN", help="only norms whose name fits, such as '*.attn.*'")
INPUT = option("--input", metavar="SHAPE", help="an example: 1x3x224x224 of numbers, or tokens:1x16")
DATA = option("--data", metavar="DATA", required=True, help="module:name, a list or loader of batches")
SETTINGS = ("steps", "lr", "separator", "compare", "folder", "where")  # of a removal


PROVEN = (
    "Before anything is changed, outputs are compared in float64, on the example and on a fresh input, a smaller one "
    "where the model takes it. A model that does otherwise at other sizes is not compared there. The edits are applied "
    "to a copy and compared with what was done."
)
VERIFIED = "The norms that go were verified to be what they are taken for; the numbers are meant to be others."


class Verb(NamedTuple):
    """A command that changes a model: what it does with the model and an example, and its options besides the usual.

    proof: what proves that the change is what it should be, or that nothing does; the end of the command's help.
    example: whether it needs an input of the model. same: whether it leaves a model that computes the same, by tensors
    of the same names. nothing: the message where a model has norms and it changes none of them. check: what the
    options are asked before an example is made.
    """

    do: Callable[[nn.Module, Any, argparse.Namespace], Report]
    options: Sequence[tuple[tuple[str, ...], dict[str, Any]]]
    proof: str
    example: bool = True
    same: bool = False
    nothing: str = NOTHING
    check: Callable[[argparse.Namespace], Any] = lambda options: None


def _norms(options: argparse.Namespace) -> Any:
    """One norm for all, or new ones by the names of the old; each name is that of a method."""
    pairs = [word.partition("=") for word in options.norms]
    if len(pairs) > 1 and not all(equals for _, equals, _ in pairs):
        raise ValueError(f"swap: give one norm for all, or OLD=NEW for each; not {' '.join(options.norms)}")
    olds = [old for old, _, _ in pairs]
    if twice := next((old for old in olds if olds.count(old) > 1), None):
        raise ValueError(f"swap: {twice} is named twice; give one norm for it")
    one = len(pairs) == 1 and (not pairs[0][1] or ":" in pairs[0][0])
    for name in options.norms if one else [name for old, _, new in pairs for name in (old, new)]:
        catalog.find(name)
    return options.norms[0] if one else {old: new for old, _, new in pairs}


def _swap(model: nn.Module, x: Any, options: argparse.Namespace) -> Report:
    return swap(model, _norms(options), where=options.where, example=x, match=options.match, inplace=False)


def _remove(model: nn.Module, x: Any, options: argparse.Namespace) -> Report:
    asked = {name: getattr(options, name) for name in SETTINGS}
    val = None if options.val is None else batches(options.val)
    return remove(model, options.data, val=val, **asked, inplace=False)


def _average(model: nn.Module, x: Any, options: argparse.Namespace) -> Report:
    parents = [model, *(saving.load(word).eval() for word in options.others)]
    repair = None if options.repair == "none" else options.repair or "repair"
    return average(parents, options.data, weights=options.weights, repair=repair, layers=options.layers)


def _check_average(options: argparse.Namespace) -> None:
    if options.data is None and (options.repair or options.layers):
        raise ValueError("average: --repair and --layers go by --data")
    if options.repair == "none" and options.layers:
        raise ValueError("average: --layers are those to repair, and --repair none repairs none")


VERBS: dict[str, Verb] = {
    "fold": Verb(
        lambda m, x, o: fold(m, x, where=o.where, inplace=False),
        [WHERE, INPUT],
        PROVEN,
        nothing="there is nothing to fold in its norms ({names}): they have no gain but 1 and no shift but 0",
    ),
    "fuse": Verb(
        lambda m, x, o: fuse(m, x, where=o.where, inplace=False),
        [WHERE, INPUT],
        f"{PROVEN} Then the whole model is timed.",
        same=True,
    ),
    "swap": Verb(
        _swap,
        [
            option("norms", nargs="+", metavar="OLD=NEW", help="layernorm=derf, or one name for all norms"),
            option("--match", action="store_true", help="fit the new norms to the old ones on the example"),
            WHERE,
            INPUT,
        ],
        VERIFIED,
        check=_norms,
    ),
    "convert": Verb(
        lambda m, x, o: convert(m, o.to, x, inplace=False),
        [option("to", metavar="TO", choices=TARGETS, help=" or ".join(TARGETS)), INPUT],
        PROVEN,
    ),
    "remove": Verb(
        _remove,
        [
            DATA,
            option("--val", metavar="DATA", help="module:name, batches held out to tell what it cost"),
            option("--steps", type=int, default=300, help="batches that it is trained on (300)"),
            option("--lr", type=float, default=6e-4, help="learning rate (0.0006)"),
            option("--separator", type=int, metavar="TOKEN", help="the token between texts"),
            option("--compare", action="store_true", help="train another copy with its norms kept"),
            option("--folder", help="keep here what is needed to go on after an interruption"),
            WHERE,
        ],
        "What is left of the norms at the end is folded, which is compared in float64; losses tell what the rest cost.",
    ),
    "average": Verb(
        _average,
        [
            option("others", nargs="+", metavar="MODEL", help="those that it is averaged with"),
            option("--weights", nargs="+", type=float, metavar="SHARE", help="of each (all alike)"),
            option("--data", metavar="DATA", help="module:name, batches that the average is repaired on"),
            option("--repair", choices=(*VARIANTS, "none"), help="with data (repair)"),
            option("--layers", nargs="+", metavar="NAME", help="those to repair (every convolution)"),
            INPUT,
        ],
        "Nothing is proven: the report tells what had become of each layer's deviation.",
        example=False,
        check=_check_average,
    ),
    "recalibrate": Verb(
        lambda m, x, o: recalibrate(m, o.data, inplace=False),
        [DATA],
        "Nothing is proven: the report tells how far each layer's statistics moved.",
    ),
    "adapt": Verb(
        lambda m, x, o: adapt(m, weight=o.weight, where=o.where, inplace=False),
        [
            option("--weight", type=float, help="share of the batch at hand (0.1)"),
            option("--method", metavar="NAME[:ARGUMENTS]", help="learn from a stream: tent, or sar:lr=0.001"),
            option("--data", metavar="DATA", help="with a method: module:name, batches, with labels or without"),
            WHERE,
            INPUT,
        ],
        VERIFIED,
        example=False,
    ),
}


def add_arguments(command: argparse.ArgumentParser, name: str) -> None:
    """Describe one of the commands."""
    command.add_argument("model", metavar="MODEL", help=models.FORMS)
    for names, words in VERBS[name].options:
        command.add_argument(*names, **words)
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument("-o", "--out", "--output", metavar="OUT", help="write the changed model into this new folder")
    command.add_argument("--check", action="store_true", help="read what was written, and compare its outputs")
    command.epilog = VERBS[name].proof
    command.set_defaults(run=run)


def add_recognized(command: argparse.ArgumentParser) -> None:
    """Describe ``normkit recognize``."""
    command.add_argument("model", metavar="MODEL", help=models.FORMS)
    command.add_argument(*INPUT[0], **INPUT[1])
    command.add_argument("--json", action="store_true", help="print the sites as JSON, with what was tried")
    command.add_argument("--check", action="store_true", help="put what was found in their places; compare outputs")
    command.add_argument("--prove", action="store_true", help="probe all, whatever was probed before")
    command.set_defaults(run=run_recognize)


def run(options: argparse.Namespace) -> int:
    """Change a model; 1 where nothing was changed, or where what was written gives other numbers."""
    if getattr(options, "method", None):
        return _adapt_stream(options)
    if options.check and not options.out:
        raise ValueError("--check reads what was written: name a folder with -o")
    if options.out:
        saving.new_folder(options.out)  # before anything is timed or trained
    model, verb = saving.load(options.model).eval(), VERBS[options.command]
    verb.check(options)  # after the model, whose module may enter methods
    x = _example_for(verb, model, options)
    before = copy_model(model)
    report = verb.do(model, x, options)
    say(json.dumps(report.to_dict(), indent=2) if options.json else report)
    if not report.changes:
        say(_nothing(options, before, x), file=sys.stderr)
    if not report.done:
        return 1
    if options.out:
        place = saving.save(before, report.model, options.out, same=verb.same)
        say(f"written to {place}", file=sys.stderr)
    return _check_saved(options, report.model, x) if options.check else 0


def _example_for(verb: Verb, model: nn.Module, options: argparse.Namespace) -> Any:
    """The first batch of the data that are named, whose batches the options hold then; else an input where needed."""
    if getattr(options, "data", None):
        options.data = batches(options.data)
        rest = iter(options.data)
        first = next(rest, None)
        if isinstance(options.data, Iterator):  # which has given its first batch away, or begins anew at each iter()
            options.data = itertools.chain([first], map(next, itertools.repeat(rest)))
        return example_of(first)
    return example(model, options.input) if verb.example or options.check else None


def _adapt_stream(options: argparse.Namespace) -> int:
    """Adapt a model to a stream, and print what that did."""
    others = (options.out, options.check, options.input, options.where)
    if not options.data or any(others) or options.weight is not None:
        why = "--method goes over --data, and takes no -o, --check, --input, --where or --weight"
        raise ValueError(f"adapt: {why}; nk.adapt returns the model")
    model = saving.load(options.model).eval()
    adapter = adapt(model, method=options.method, inplace=False)
    stream = run_stream(model, adapter, batches(options.data), options.method)
    say(json.dumps(stream.to_dict(), indent=2) if options.json else stream)
    return 1 if stream.broken else 0


def _nothing(options: argparse.Namespace, model: nn.Module, x: Any) -> str:
    """Say why no norm was changed."""
    where = getattr(options, "where", None)
    if where:
        return f"no norm of it has a name like {where!r}"
    names = sorted({str(match.name) for match in table(model, x).found.values()})
    return VERBS[options.command].nothing.format(names=", ".join(names)) if names else NOTHING


def run_recognize(options: argparse.Namespace) -> int:
    """Print every norm of a model; 1 where one looks like a norm and is not recognized, or is not what was claimed."""
    model = saving.load(options.model)
    needs_example = options.check or options.input is not None
    x = example(model, options.input) if needs_example else None
    if x is not None:
        proof.sizes_of("recognize", model, x)
    sites = table(model, x, options.prove)
    say(json.dumps(sites.to_dict(), indent=2) if options.json else sites)
    for name, match in {} if options.json else sites.rest.items():
        say(f"{name or 'the model'}: {match.why_not}")
    return max(int(bool(sites.rest)), _stands(model, sites, x) if options.check else 0)


def _stands(model: nn.Module, sites: Recognized, x: Any) -> int:
    """Put what was found in the places of a copy, and compare; 1 where results are others."""
    twin = copy_model(model).eval()
    known = {name: match.module for name, match in sites.found.items() if match.sized and match.module is not None}
    changed = replace_parts("recognize", twin, copy.deepcopy(known), inplace=False)
    try:
        apart = proof.prove(model.eval(), changed.eval(), x, smaller=False)  # of that size alone
    except Exception as error:
        say(f"with the {len(known)} that were recognized in their places: {error}", file=sys.stderr)
        return 1
    text = f"with the {len(known)} that were recognized in their places, outputs differ by {apart:.0e} of the largest"
    say(text, file=sys.stderr)
    return 0


def batches(source: str) -> Any:
    """The batches that ``module:name`` is, or gives."""
    loader = models.import_object(source, "data", "; data are batches of a module, such as my_data:batches")
    return loader() if callable(loader) else loader


def _check_saved(options: argparse.Namespace, model: nn.Module, x: Any) -> int:
    source, colon, _ = options.model.partition(":")
    made_by = options.model.partition("@")[0]
    word = f"{made_by}@{options.out}" if colon and source not in ("timm", "hf") else options.out
    again = saving.load(word).eval()
    apart = proof.apart(model, again, x)
    say(f"read again, its outputs differ by {apart:.0e} of the largest number", file=sys.stderr)
    return int(not apart <= CLOSE)


def example(model: nn.Module, text: str | None = None) -> Any:
    """An input for a model: as it is asked for, or as its own configuration has it; in the type of its parameters."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    drawn = _drawn_example(model, text)
    return proof.cast(drawn, *dtypes) if len(dtypes) == 1 else drawn


def _drawn_example(model: nn.Module, text: str | None) -> Any:
    g = torch.Generator().manual_seed(0)
    words = max((part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)), default=2)
    name = getattr(model, "main_input_name", None)
    own: Any = getattr(model, "config", None)
    if text is not None:
        typed = _typed_example(text, words, g)
        more = _for_decoder(model, typed, words, g)
        return {name: typed, **more} if more else typed
    config = getattr(model, "pretrained_cfg", None)
    if isinstance(config, dict) and "input_size" in config:
        return torch.randn(1, *config["input_size"], generator=g)
    if name == "input_ids":
        tokens = torch.randint(getattr(own, "vocab_size", words), TOKENS, generator=g)
        return {name: tokens, **_for_decoder(model, tokens, words, g)}
    size = getattr(own, "image_size", None)
    if name == "pixel_values" and isinstance(size, int | list | tuple):
        sides = [size, size] if isinstance(size, int) else list(size)
        return {name: torch.randn(1, getattr(own, "num_channels", 3), *sides, generator=g)}
    raise ValueError("what the model takes is not known: give --input, such as 1x3x224x224 or tokens:1x16")


def _for_decoder(model: nn.Module, x: Tensor, words: int, g: torch.Generator) -> dict[str, Tensor]:
    """The tokens that an encoder-decoder of transformers takes beside its input; none of other models."""
    own: Any = getattr(model, "config", None)
    if not getattr(own, "is_encoder_decoder", False):
        return {}
    if "decoder_input_ids" not in inspect.signature(model.forward).parameters:  # its encoder alone
        return {}
    count: Any = getattr(own, "decoder_vocab_size", None) or getattr(own, "vocab_size", words)
    return {"decoder_input_ids": torch.randint(count, (len(x), TOKENS[1]), generator=g)}


def _typed_example(text: str, words: int, g: torch.Generator) -> Tensor:
    kind, colon, shape = text.rpartition(":")
    if not all(size.isdecimal() and int(size) for size in shape.split("x")) or kind not in ("", "tokens"):
        raise ValueError(f"--input must be like 1x3x224x224 or tokens:1x16, not {text!r}")
    sizes = [int(size) for size in shape.split("x")]
    return torch.randint(words, sizes, generator=g) if colon else torch.randn(sizes, generator=g)
