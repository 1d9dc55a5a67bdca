"""What the tools refuse, those that watch, change and draw models: each names the argument."""

import json
import math
import operator
import pathlib
from collections import UserList

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import catalog, cli, kinds
from normkit.bench import attention, cases
from normkit.choice import parsed
from normkit.kinds import adapter
from normkit.ops import channel
from normkit.ops.rope import Frequencies
from normkit.ops.row import Row, add_rms_norm
from normkit.surgery import saving
from normkit.surgery.edits import source
from normkit.surgery.edits.edit import load_numbers
from normkit.surgery.exact.pairs import fold_batchnorm
from normkit.surgery.recognition import specimen
from normkit.surgery.removal.weaning import next_token
from normkit.surgery.statistics import streaming
from normkit.watching.checkup import checkup
from normkit.watching.curvature import curvature
from normkit.watching.drawn import draw
from normkit.watching.inspecting import batches_of, inspect
from normkit.watching.landscape import landscape
from normkit.watching.live import follow
from normkit.watching.seen import load
from normkit.watching.signals.noise import noise_scale
from normkit.watching.widths import coordinate_check

NONE, TOKENS = torch.zeros(0), torch.zeros(1, 3, dtype=torch.int64)
BATCHES = [(torch.eye(2), torch.tensor([0, 1]))]


def linear():
    return nn.Linear(2, 2)


def watched(**options):
    return nk.watch(linear(), **options)


def folded(**options):
    one = torch.ones(2)
    return fold_batchnorm(torch.eye(2), one, one, one, one, one, layer="linear", **options)


def quantized(*args, **options):
    pytest.importorskip("torchao")
    return nk.quantize(*args, **options)


def removed(**options):
    return nk.remove(nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)), [TOKENS], **options)


def told(reasons):
    """Raise what a tool tells of itself where it goes on."""
    raise ValueError("; ".join(reasons))


class Read(nn.Module):
    """A layer, a norm that reads it, a layer that reads the norm, and others, called one on another as is asked."""

    def __init__(self, how, norm, **parts):
        super().__init__()
        self.how, self.norm, self.first, self.last = how, norm, nn.Linear(4, 4), nn.Linear(4, 4)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.how(self, x)


def left_by_fold(how):
    model = Read(how, nn.BatchNorm1d(4), less=nn.Linear(1, 2))
    model.register_buffer("places", torch.arange(4))
    told(change.why_not for change in nk.fold(model.eval(), torch.ones(3, 4)))


def converted(how, to="pre-rmsnorm", **parts):
    model = Read(how, nn.LayerNorm(4), **parts).eval()
    told(str(change.why_not) for change in nk.convert(model, to, torch.randn(2, 3, 4)))


def rotated(how, **parts):
    model = Read(how, nn.RMSNorm(4), **parts).eval()
    told(str(need.why_not) for need in nk.ready(model, "rotation", torch.randn(2, 3, 4)).needs)


def empty(name, text=""):
    pathlib.Path(name).write_text(text)
    return name


def watched_run(path):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1, to=path) as seen:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    return seen


def damaged_run():
    """Change a digit in the fourth line of a run."""
    path = pathlib.Path("watch.jsonl")
    watched_run(path)
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace('"step": ', '"step": 1', 1)
    path.write_text("\n".join([*lines, ""]))
    return path


def run_without_seals():
    """Write a run of before there were seals, with a row that is longer than its columns."""
    path = pathlib.Path("columns.jsonl")
    facts = {"event": "watch", "facts": {}}
    columns, row = {"event": "columns", "columns": [["", "loss", "mean"]]}, {"event": "sample", "step": 1}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (facts, columns, {**row, "values": [1, 2]})))
    return path


CASES = {
    "checkup: rate must lie in (0.0, inf], not 0": lambda: checkup(linear(), BATCHES, rate=0),
    "checkup: seconds must lie in (0.0, inf], not 0": lambda: checkup(linear(), BATCHES, seconds=0),
    "checkup: batches must be inputs and targets that fit": lambda: checkup(linear(), [torch.eye(2)]),
    "checkup: no parameter of Linear requires a gradient": lambda: checkup(
        linear().requires_grad_(False), BATCHES, loss=lambda output, batch: output.sum()
    ),
    "curvature: top must be at least 1": lambda: curvature(linear(), BATCHES, top=0),
    "curvature: steps must be at least 1": lambda: curvature(linear(), BATCHES, steps=0),
    "curvature: draws must be at least 1": lambda: curvature(linear(), BATCHES, draws=0),
    "curvature: top must be less than the 6 trained parameters, not 6": lambda: curvature(linear(), BATCHES, top=6),
    "inspect: passes must be at least 1": lambda: inspect(linear(), passes=0),
    "inspect: the model gives str, in which there is no floating tensor": lambda: inspect(Says("a")),
    "landscape: span must lie in (0.0, inf], not 0": lambda: landscape(linear(), BATCHES, span=0),
    "landscape: axes must be at least 1": lambda: landscape(linear(), BATCHES, axes=0),
    "landscape: axes must be 1 or 2, not 3": lambda: landscape(linear(), BATCHES, axes=3),
    "landscape: points must be at least 2": lambda: landscape(linear(), BATCHES, points=1),
    "watch: start must be at least 0": lambda: watched(start=-1),
    "watch: every must be at least 1": lambda: watched(every=0),
    "watch: signals must be one of": lambda: watched(signals=["loss"]),
    "watch: keep must be at least 8": lambda: watched(keep=7),
    "coordinate_check: parametrization must be one of": lambda: coordinate_check(
        nn.Identity, [1, 2], parametrization=""
    ),
    "coordinate_check: widths must be at least 1": lambda: coordinate_check(nn.Identity, [0, 1]),
    "coordinate_check: widths must be at least two different numbers, not [1]": lambda: coordinate_check(
        nn.Identity, [1, 1]
    ),
    "coordinate_check: steps must be at least 1": lambda: coordinate_check(nn.Identity, [1, 2], steps=0),
    "coordinate_check: seeds must be at least 1": lambda: coordinate_check(nn.Identity, [1, 2], seeds=0),
    "coordinate_check: the model gives str, which holds no floating tensor": lambda: coordinate_check(
        lambda width: Says("a", width), [1, 2], batches=BATCHES
    ),
    "data must be built-in data or package.module:name, batches or a function, not 'nowhere'": lambda: batches_of(
        "nowhere"
    ),
    "math:pi gives float, not batches": lambda: batches_of("math:pi"),
    "noise_scale: no sample has the gradients of examples": lambda: noise_scale(NONE, NONE, NONE),
    "watch.jsonl is damaged: line 4 is not what was written": lambda: load(damaged_run()),
    "watch.jsonl: it is damaged: line 4 is not what was written": lambda: told(watched_run(damaged_run()).notes),
    "columns.jsonl is damaged: line 3 is not what was written": lambda: load(run_without_seals()),
    "nothing.jsonl was not written by a watch: it has no line of facts": lambda: load(empty("nothing.jsonl")),
    "nothing.svg holds no file that a watch has written": lambda: follow("nothing.svg", once=True),
    "own.csv was not written by a watch; nk.watch(..., to=": lambda: follow(empty("own.csv", "a\n"), once=True),
    "there is nothing to draw in here.svg": lambda: draw("here.svg", []),
    "the channels are mixed before they are read": lambda: left_by_fold(lambda m, x: m.less(m.norm(x).mean(1, True))),
    "it is read by index_select with another tensor": lambda: left_by_fold(
        lambda m, x: m.last(m.norm(x).index_select(1, m.places))
    ),
    "wide is not called with one input and one result": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x))), wide=nn.LayerNorm(4)
    ),
    "what it normalizes is no residual stream: tanh makes it": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x).tanh()))
    ),
    "what it normalizes is no residual stream: mul makes it": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x) * m.last(x)))
    ),
    "ready: the model cannot be traced with this example": lambda: rotated(
        lambda m, x: m.last(m.norm(x)) if float(x.sum()) else x
    ),
    "the features of first are mixed before they are scaled": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x).flip(-1) * m.scale)), scale=nn.Parameter(torch.ones(4))
    ),
    "the features are mixed by flip": lambda: converted(lambda m, x: m.last(m.norm(m.first(x).flip(-1)))),
    "the features are mixed by roll": lambda: converted(
        lambda m, x: m.last(m.norm(kept := m.first(x))) + kept.roll(1, -1)
    ),
    "cat joins other features to the residual stream": lambda: converted(
        lambda m, x: m.wide(torch.cat([m.norm(m.first(x)), m.last(x)], -1)), wide=nn.LayerNorm(8)
    ),
    "first writes to the residual stream, and elsewhere too": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x))) + m.first(x).tanh()
    ),
    "a Conv1d in groups or transposed writes to the residual stream": lambda: converted(
        lambda m, x: m.last(m.norm(m.conv(x.transpose(1, 2)).transpose(1, 2))), conv=nn.Conv1d(4, 4, 1, groups=2)
    ),
    "norm cannot lose a feature, since not layers alone read it: it is read by tanh": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x)).tanh()), "pre-crmsnorm"
    ),
    "conv reads norm, and is no linear layer on its features": lambda: converted(
        lambda m, x: m.conv(m.norm(m.first(x)).transpose(1, 2)), "pre-crmsnorm", conv=nn.Conv1d(4, 4, 1)
    ),
    "last reads norm, and is no linear layer on its features": lambda: converted(
        lambda m, x: m.last(m.norm(m.first(x)).flip(-1)), "pre-crmsnorm"
    ),
    "conv, which reads a norm on it, is no linear layer": lambda: rotated(
        lambda m, x: m.conv(m.norm(m.first(x)).transpose(1, 2)), conv=nn.Conv1d(4, 4, 1)
    ),
    "last reads the features of a norm in another order": lambda: rotated(
        lambda m, x: m.last(m.norm(m.first(x)).flip(-1))
    ),
    "conv, a Conv1d that cannot be rotated, writes to it": lambda: rotated(
        lambda m, x: m.last(m.norm(m.conv(x.transpose(1, 2)).transpose(1, 2))), conv=nn.Conv1d(4, 4, 1, groups=2)
    ),
    "there are streams of 4 and 8 features": lambda: rotated(
        lambda m, x: m.more(m.wide(m.widen(m.last(m.norm(m.first(x)))))),
        **{"wide": nn.RMSNorm(8), "widen": nn.Linear(4, 8), "more": nn.Linear(8, 4)},
    ),
    "fold_batchnorm: position must be one of 'after', 'before'": lambda: folded(position="within"),
    "fold_batchnorm: eps must lie in [0.0, inf], not -1": lambda: folded(eps=-1),
    "fold_batchnorm: eps must be finite": lambda: folded(eps=math.inf),
    "quantize: group must be at least 1": lambda: nk.quantize(linear(), group=0),
    "quantize: steps must be at least 1": lambda: nk.quantize(linear(), steps=0),
    "quantize: rows must be at least 1": lambda: nk.quantize(linear(), rows=0),
    "quantize: lr must lie in [0.0, inf], not -1": lambda: nk.quantize(linear(), lr=-1.0),
    "quantize: norm_lr must lie in [0.0, inf], not -1": lambda: nk.quantize(linear(), norm_lr=-1.0),
    'quantize: bits="auto" needs a model that returns a tensor, not str': lambda: quantized(
        Says("a"), [torch.eye(2)], bits="auto", budget="4 bits"
    ),
    "perplexity: batches must hold at least two tokens in a row": lambda: nk.perplexity(linear(), []),
    "remove: steps must be at least 1": lambda: removed(steps=0),
    "remove: weight_decay must lie in [0.0, inf], not -1": lambda: removed(weight_decay=-1.0),
    "remove: auxiliary must lie in [0.0, inf], not -1": lambda: removed(auxiliary=-1.0),
    "remove: only of tokens (B, T) and scores (B, T, words)": lambda: next_token(linear(), torch.ones(1, 2)),
    "recalibrate: the model has no layer with batch statistics": lambda: nk.recalibrate(linear(), [torch.eye(2)]),
    "recognize: module must be a torch.nn.Module, not int": lambda: nk.recognize(1),
    "adapt: a batch of data must be a tensor, (inputs, labels) or a dict, not list": lambda: streaming.parts(["a"]),
    "other is in the weights or in the model alone": lambda: load_numbers(
        linear(), {**linear().state_dict(), "other": NONE}
    ),
    "bias is in the weights or in the model alone": lambda: load_numbers(linear(), {"weight": torch.eye(2)}),
    "add_row_norm: x must be a floating-point tensor": lambda: add_rms_norm(TOKENS, TOKENS),
    "rmsnorm takes": lambda: cases.Case(catalog.find("rmsnorm").card, (), "float32", "", "").fitted,
    "its block's forward reads __what, which": lambda: source._parsed(Private.forward),
    "its block's forward is no plain method": lambda: source._parsed(closed(1)),
    "holds no config.json: name what builds the model": lambda: saving._build_from_config("nowhere"),
    "quantize: the data never reach a block of the model": lambda: quantized(
        Aside(), [torch.ones(1, 2)], method="norm-tweaking"
    ),
    "it returns a str": lambda: specimen.first("a"),
    "its buffers are on the meta device, and it has no reset_parameters": lambda: specimen.with_numbers(
        Kept().to("meta")
    ),
    "math:pi gives float, not a torch.nn.Module": lambda: saving.load("math:pi"),
    "swap: give one norm for all, or OLD=NEW for each; not dyt rmsnorm": lambda: word(
        "swap", "torch.nn:Identity", "dyt", "rmsnorm"
    ),
    "--data, --loss and --rate are of a training: name its MODEL": lambda: word("doctor", "--rate", "0.1"),
    "--build goes without a MODEL": lambda: word("doctor", "torch.nn:Identity", "--build"),
    "--out goes with --run; --page and --kind go with --all": lambda: word("claim", "rmsnorm", "--out", "own"),
    "--page: absent.md is no file": lambda: word("claim", "--all", "--page", "absent.md"),
    "--sizes: attention is measured at a number of tokens from 16, such as 1024, not 2x3": lambda: attention.tokens(
        (2, 3)
    ),
    "adapt: --method goes over --data, and takes no -o": lambda: word("adapt", "torch.nn:Identity", "--method", "tent"),
    "a model is looked at on the batches of its training": lambda: word("doctor", "torch.nn:Identity"),
    "none of the methods that 'lamb' names fits 'vit'": lambda: word("list", "lamb", "--fits", "vit"),
    "--fits: 'torch.nn:Identity' has no norm": lambda: word("list", "lamb", "--fits", "torch.nn:Identity"),
    "list: sampler must be one of": lambda: word("list", "nowhere", "--kind", "sampler"),
    "an argument is written key=value, not 'eps'": lambda: parsed("rmsnorm:eps"),
    "name must be a string such as 'rmsnorm', not 1": lambda: nk.create(1),
    "name must be a string such as 'rmsnorm', not what is called with a width": lambda: nk.create(nk.RMSNorm, 4),
    "no line 'speed' in the contract": lambda: catalog.find("rmsnorm").card.held_to("speed"),
    "UserList is of no kind": lambda: kinds.kind_of(UserList),
    "a method is a class or a function, not <module 'operator'": lambda: kinds.kind_of(operator),
    "it: optimizer must be one of 'adam', 'sgd'": lambda: adapter.optimizer_builder("it", "lamb", lr=0.1, momentum=0.9),
    "it: nesterov=True needs a momentum above 0": lambda: adapter.optimizer_builder(
        "it", "sgd", lr=0.1, momentum=0.0, nesterov=True
    ),
    "it: lr must lie in": lambda: adapter.optimizer_builder("it", "sgd", lr=-0.1, momentum=0.0),
    "Row: eps_place='outside' is for statistic='square'": lambda: Row(statistic="absolute", eps_place="outside"),
    "turns: 3 frequencies turn no head of 4 features": lambda: Frequencies((1.0, 1.0, 1.0)).turns(TOKENS, 4),
    "turns: 1 frequencies turn no head of 3 features": lambda: Frequencies((1.0,)).turns(TOKENS, 3),
    "global_response_norm: x must be a floating": lambda: channel.global_response_norm(
        TOKENS, torch.ones(3), torch.ones(3), channels_last=True
    ),
}


class Says(nn.Module):
    """Gives what it was built with, whatever it is fed."""

    def __init__(self, what, width=2):
        super().__init__()
        self.what, self.inner = what, nn.Linear(2, width)

    def forward(self, x):
        return self.what


class Private(nn.Module):
    """Reads a name that Python writes otherwise in its class."""

    def forward(self, x):
        return x.__class__ and self.__what


def closed(what):
    def forward(self, x):
        return what

    return forward


class Aside(nn.Module):
    """Has blocks that are not called."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)) for _ in range(2)])

    def forward(self, x):
        return x


class Kept(nn.Module):
    """Has a buffer that nothing fills."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(2))

    def forward(self, x):
        return x * self.kept


def word(*words):
    """Run a command, and raise what it says of itself."""
    options = cli.parser().parse_args(words)
    return options.run(options)


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused_in_words(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError)) as refused:
        CASES[message]()
    assert message in str(refused.value)
