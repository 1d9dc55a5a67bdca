"""The settings of a comparison: each is a field, which carries all that is known of it.

The command line, ``nk.compare``'s signature and docstring, what is inherited from a folder, what may change on
resuming, the words of errors and the report's table are read from the fields.

>>> spell("metric_direction"), spell("norm")
('--metric-direction', '--norm')
>>> with in_python():
...     spell("metric_direction"), spell("norm")
('metric_direction', 'norms')
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normkit.lab.plan.variants import Variant

WHERE = "normkit-report"
ROUNDS = 20  # of a run with many owners of data
MOST = 24  # seeds, where they go on until it is decided
# samples of a batch, by what data are
BATCHES = {"text": 8, "images": 64, "signals": 64, "matrices": 64, "samples": 256}
SPLITS = {
    "even": "as many to each",
    "dirichlet": "each class by shares from a Dirichlet law, the less alike the smaller: dirichlet:0.3",
    "classes": "to each so many classes: classes:2",
    "looks": "even, inputs with a gain and an offset of each client's own, of that deviation: looks:0.5",
}
DIRECTIONS = ("lower", "higher")
LADDERS = {
    "steps": "the length of a run, also where it is given in seconds",
    "width": "of a built-in model",
    "depth": "of a built-in model",
    "data": "rungs are shares of the training data, the last of which is all of them",
}
STREAMS = {
    "iid": "a stream of each corruption, in random order",
    "class": "the same, one class after the other",
    "mixed": "all corruptions in each batch",
    "recurring": "one corruption after the other, three rounds of them",
}
ALL_SHIFTS = "all"
WHAT, ON, MANY, BY = "what is compared", "on what", "many owners of data", "by what, and how surely"
HOW, LATER, PLACE = "how it is trained", "what the trained models are put to", "where"

RUN, SCHEDULE, JUDGEMENT, MACHINE = "of a run", "of the plan", "of the judgement", "of the machine"
"""What a setting decides: a run's numbers; which runs there are, and for how long; what is concluded; no number."""

SAME, MORE, RUNGS, FOLLOWS, ANY = "same", "more", "rungs", "follows", "any"
"""What it may be in a comparison that goes on: the same; more; with more rungs; what follows from a new length;
anything."""


@dataclass(frozen=True)
class Bound:
    """What numbers a setting takes, in words and as a test."""

    wanted: str
    fits: Callable[[Any], bool]


ALL = Bound("", lambda value: True)
COUNT = Bound("at least 1", lambda value: value >= 1)
SIZE = Bound("at least 0", lambda value: value >= 0)
ABOVE = Bound("above 0", lambda value: value > 0)
SHARE = Bound("a share of the run, from 0 to below 1", lambda value: 0 <= value < 1)
SEVERAL = Bound("at least 2", lambda value: value >= 2)
WIDTHS = Bound("from 2 to 8", lambda value: 2 <= value <= 8)


@dataclass(frozen=True)
class Option:
    """All that is known of a setting.

    help: what it is, where ``{name}`` is another option as the user types it, and ``{default}`` the default.
    group: the heading under which the command lists it; none for what cannot be typed.
    role, resuming: what it decides, and what it may become.
    depends: whether the default depends on the rest; inherited: whether a folder's own stands where none is typed.
    task: whether the data, the model and the measure depend on it.
    of_loop: whether the training loop decides it, so that one of the user's own takes no such setting.
    name: what users type for it, where that is not the field's name; flags: all of its names on the command line.
    handed: from Python, also the thing itself instead of its name: "function" or "thing"; python: its help there.
    """

    help: str = ""
    group: str = ""
    role: str = RUN
    resuming: str = SAME
    bound: Bound = ALL
    choices: tuple[str, ...] | None = None
    metavar: str = ""
    depends: bool = False
    inherited: bool = True
    task: bool = False
    of_loop: bool = False
    name: str = ""
    flags: tuple[str, ...] = ()
    handed: str = ""
    python: str = ""
    kind: type = str
    many: bool = False
    default: Any = None

    @property
    def called(self) -> str:
        """The name from Python."""
        return argument(self.name)

    @property
    def open_value(self) -> Any:
        """What stands where nothing is typed: nothing, if the folder or the rest decides."""
        return None if self.inherited or self.depends else self.default

    def describe(self, python: bool = False) -> str:
        """Return the help in the words of the command line or of Python."""
        words = {name: name if python else flag(name) for name in OWN}
        shown = "" if self.default is None else f"{self.default}"
        return ((python and self.python) or self.help).format(default=shown, **words)

    def add_to(self, group: Any) -> None:
        """Add it to the command line; what is not typed stays open."""
        words: dict[str, Any] = {"help": self.describe(), "default": self.open_value}
        if self.kind is bool:
            words["action"] = "store_true"
        elif self.choices:
            words["choices"] = self.choices
        else:
            words |= {
                "metavar": self.metavar or METAVARS[self.kind],
                "type": self.kind if self.kind is str or not self.many else between_commas(self.kind),
                "nargs": "+" if self.many else None,
            }
            words |= {"action": Joined} if self.many and self.kind is not str else {}
        group.add_argument(*(self.flags or (flag(self.name),)), **words)

    def require(self, value: Any) -> None:
        """Refuse a value out of bounds."""
        for one in value if self.many else (value,):
            if one is not None and not self.bound.fits(one):
                raise ValueError(f"{spell(self.name)} must be {self.bound.wanted}, not {one}")


def between_commas(kind: type) -> Callable[[str], list[Any]]:
    """Return a function that reads numbers between commas.

    >>> between_commas(float)("1,2.5")
    [1.0, 2.5]
    """

    def read(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    read.__name__ = kind.__name__  # which errors name
    return read


class Joined(argparse.Action):
    """Take numbers that are written one by one, between commas, or both."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Keep them as one list."""
        setattr(namespace, self.dest, [number for part in values for number in part])


def setting(default: Any, help: str = "", group: str = "", **more: Any) -> Any:
    """Return a field that is a setting."""
    return field(default=default, metadata={"option": Option(help, group, default=default, **more)})


@dataclass(frozen=True)
class Settings:
    """What all variants have in common, as a plan keeps it.

    steps, seconds: how long a run trains; with ``seconds``, the clock decides and ``steps`` is None.
    search: the share of a run's length that a trial of the search gets; a short trial favours a rate too high for the
        whole run, most of all for a variant that is easily shaken.
    share: of the training data, what is trained on; in a run's recipe where it is not all.
    higher: whether more of the measure is better.
    """

    allow_leak: bool = setting(
        False, "let norms that take in later tokens stand where these are predicted", WHAT, task=True, of_loop=True
    )
    model: str = setting(
        "decoder:depth=2",
        "decoder, vit, resnet, spdnet, flow, each with sizes: decoder:dim=128,depth=6; hf:PATH_OR_NAME, timm:NAME, "
        "module:factory ({default}; with {federated} resnet:dim=32)",
        ON,
        metavar="MODEL",
        task=True,
        of_loop=True,
        handed="function",
        python="a function that makes the model, whose norms are exchanged, or that takes norm, a function of the "
        'width; or a name as the command takes it: "decoder", "timm:resnet18", "hf:PATH", "module:factory"; '
        '"{default}" by default, with {federated} "resnet:dim=32"',
    )
    train: str | None = setting(
        None,
        "module:function, a training loop of your own instead: function(build, seed, log) returns its measure",
        ON,
        handed="function",
        python="a training loop of your own, instead of model and data: train(build, seed, log), where build(width) is "
        "a norm or build(model) exchanges those of a model, log(step, loss=...) writes down how it goes, and what is "
        "returned is the measure: a loss, unless metric names it",
    )
    data: str = setting(
        "python-docs",
        "python-docs, digits, mnist1d, spd, a text file, a folder of text or of images, hf:NAME, hf:NAME@SPLIT, "
        "module:loader; of a flow a table or an array as 'normkit fit' takes it (what suits the model)",
        ON,
        metavar="DATA",
        depends=True,
        task=True,
        of_loop=True,
        handed="thing",
        python="a loader, a data set, batches, or a function that returns such; or a name as the command takes it",
    )
    val: str | None = setting(
        None,
        "held-out data, named as {data} is; of hf:NAME also the name of a split (a tenth of the data, drawn once)",
        ON,
        metavar="DATA",
        task=True,
        of_loop=True,
        handed="thing",
    )
    batch: int | None = setting(
        BATCHES["text"],
        f"samples of a batch (text {{default}}; rows of a flow {BATCHES['samples']}; others {BATCHES['images']}, with "
        f"{{federated}} {BATCHES['images'] // 2}; a loader's own)",
        ON,
        bound=COUNT,
        depends=True,
        task=True,
        of_loop=True,
    )
    length: int = setting(64, "tokens of a sequence ({default})", ON, bound=COUNT, task=True, of_loop=True)
    federated: bool = setting(
        False,
        "divide the data among clients; a step is then a round: each client trains, a server puts states together",
        MANY,
    )
    clients: int = setting(8, "how many ({default})", MANY, bound=SEVERAL)
    split: str = setting(
        "dirichlet:0.3",
        f"who has what: {'; '.join(f'{name}, {law}' for name, law in SPLITS.items())} ({{default}})",
        MANY,
        metavar="HOW",
    )
    local_steps: int = setting(5, "steps of each client in a round ({default})", MANY, bound=COUNT)
    metric: str | None = setting(
        None,
        "what variants are compared by: loss, accuracy, or module:function, a function of the model and a list of "
        "held-out batches (loss); with {federated} also client-accuracy, the clients' mean on data like their own, and "
        "worst-client",
        BY,
        task=True,
        handed="function",
        python='"loss", "accuracy", or a function of the model and the list of held-out batches; with {federated} also '
        '"client-accuracy", the clients\' mean on data like their own, and "worst-client"; "loss" by default',
    )
    higher: bool = setting(False, role=JUDGEMENT)
    margin: float = setting(
        0.01,
        "difference that counts as none, as a share of the baseline's measure ({default})",
        BY,
        role=JUDGEMENT,
        resuming=ANY,
        bound=SIZE,
    )
    seeds: int = setting(
        5, "runs of each variant, from 1 ({default})", BY, role=SCHEDULE, resuming=MORE, bound=COUNT, depends=True
    )
    until_decided: bool = setting(
        False,
        f"add seeds until each variant is better, worse or as good, {{seeds}} at most ({MOST})",
        BY,
        role=JUDGEMENT,
        resuming=ANY,
    )
    steps: int | None = setting(
        160,
        f"steps of a run ({{default}}; rounds, {ROUNDS})",
        HOW,
        role=SCHEDULE,
        resuming=MORE,
        bound=COUNT,
        depends=True,
    )
    seconds: float | None = setting(
        None, "instead of steps: seconds of training of a run", HOW, role=SCHEDULE, resuming=MORE, bound=ABOVE
    )
    ladder: tuple[float, ...] | None = setting(
        None,
        "train all variants at several lengths or sizes, each with its own search, and report how the gap to the "
        "baseline changes; multiples of what {ladder_of} names, such as 1,2,4",
        BY,
        role=SCHEDULE,
        resuming=RUNGS,
        bound=ABOVE,
    )
    ladder_of: str = setting(
        "steps",
        f"what grows along {{ladder}} ({{default}}): {'; '.join(f'{name}, {law}' for name, law in LADDERS.items())}",
        BY,
        role=SCHEDULE,
        resuming=RUNGS,
        choices=tuple(LADDERS),
    )
    factor: tuple[str, ...] | None = setting(
        None,
        "two choices whose names are crossed, such as optimizer norm: test whether the gap between names of the second "
        "depends on the first",
        BY,
        role=JUDGEMENT,
        resuming=ANY,
    )
    lrs: tuple[float, ...] | None = setting(
        None, "learning rates to search; one: no search", HOW, role=SCHEDULE, bound=ABOVE, name="lr"
    )
    trials: int = setting(
        5,
        "the most trials of each variant's search, a run each: the optimizer's usual rate and three times that, then "
        "further ones while the best is the lowest or highest ({default}); 1: no search",
        HOW,
        role=SCHEDULE,
        bound=COUNT,
    )
    decays: tuple[float, ...] | None = setting(
        None,
        "weight decays to search at the best learning rate of each variant, a run each; one: no search",
        HOW,
        role=SCHEDULE,
        bound=SIZE,
        of_loop=True,
        name="decay",
    )
    search: float = setting(1.0, role=SCHEDULE)
    share: float = setting(1.0, role=SCHEDULE, task=True, of_loop=True)
    warmup: float = setting(0.2, "share of a run with a growing rate ({default})", HOW, bound=SHARE, of_loop=True)
    clip: float = setting(1.0, "greatest gradient norm; 0: any ({default})", HOW, bound=SIZE, of_loop=True)
    weight_decay: float = setting(0.1, "for matrices ({default})", HOW, bound=SIZE, of_loop=True)
    shift: tuple[str, ...] | None = setting(
        None,
        "show corrupted held-out data to adapters after each full run: noise, blur, contrast, tint, translation, "
        "occlusion, jitter; of signals drift and stretch, but no tint; of text typos, case, keyboards; or all; with a "
        "severity from 1 to 5 (3): noise:severity=5",
        LATER,
        role=SCHEDULE,
    )
    adapt: tuple[str, ...] = setting(
        ("tent", "eata", "sar"),
        "the adapters that {shift} shows them to, each with arguments or not: sar:lr=0.001 (tent eata sar)",
        LATER,
        role=SCHEDULE,
    )
    stream: tuple[str, ...] = setting(
        ("iid",),
        f"in what order {{shift}} shows them: {'; '.join(f'{name}, {law}' for name, law in STREAMS.items())}; in "
        "batches of 32, or class:batch=1 (iid)",
        LATER,
        role=SCHEDULE,
    )
    quant: tuple[str, ...] | None = setting(
        None,
        "put each trained model into few bits: nearest, learned-rounding, norm-tweaking, adaquant, or two joined by +, "
        "as 'normkit quantize' does; keys and values alone: kivi, turboquant, nsnquant; the inputs of linears alone: "
        "activations",
        LATER,
        role=SCHEDULE,
    )
    bits: tuple[int, ...] = setting(
        (4, 3, 2), "how many bits {quant} leaves a number (4 3 2)", LATER, role=SCHEDULE, bound=WIDTHS
    )
    engine: str = setting(
        "local",
        "processes beside this one, this one alone, or Ray ({default}); under torchrun, its processes share each run",
        PLACE,
        role=MACHINE,
        resuming=ANY,
        choices=("local", "here", "ray"),
        inherited=False,
    )
    device: str = setting(
        "cpu", "where to train (auto)", PLACE, choices=("auto", "cpu", "cuda"), depends=True, inherited=False
    )
    precision: str = setting("no", "mixed precision ({default})", PLACE, choices=("no", "bf16", "fp16"), of_loop=True)
    sharded: bool = setting(False, "under torchrun: FSDP2 instead of DDP", PLACE, inherited=False, of_loop=True)
    workers: int = setting(
        1,
        "runs side by side (one a core or GPU)",
        PLACE,
        role=MACHINE,
        resuming=ANY,
        bound=COUNT,
        depends=True,
        inherited=False,
    )
    threads: int = setting(1, "threads of a run (the cores shared out)", PLACE, bound=COUNT, depends=True)
    log_every: int = setting(5, resuming=FOLLOWS, of_loop=True)
    eval_every: int = setting(40, resuming=FOLLOWS, of_loop=True)
    eval_batches: int = setting(5, task=True, of_loop=True)
    probe_every: int = setting(40, resuming=FOLLOWS, of_loop=True)
    checkpoint_seconds: float = setting(10.0, role=MACHINE, resuming=ANY, of_loop=True)
    prints: tuple[str, ...] = setting((), role=MACHINE, resuming=ANY)  # of code and files, behind their names

    def __post_init__(self) -> None:
        """Keep a rate or a decay that is given twice once: each is tried once."""
        for name in ("lrs", "decays"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(given)))

    def sources(self) -> list[str]:
        """Return what the runs need from elsewhere: modules, files, or what a script has handed in."""
        return [source for name in HANDED if (source := getattr(self, name))]

    def of(self, variant: Variant) -> Settings:
        """Return the settings with what a variant has of its own."""
        own = {name: value for name in ("batch", "warmup") if (value := getattr(variant, name)) is not None}
        return dataclasses.replace(self, **own)


@dataclass(frozen=True)
class Call:
    """What is of one call alone, and no setting of the comparison."""

    variants: str | None = setting(
        None,
        "a YAML file instead: lists to cross, or 'variants', a list",
        WHAT,
        metavar="FILE",
        python='instead, a list of mappings, each with a norm and what else the variant has of its own: [{{"norm": '
        '"layernorm"}}, {{"name": "short", "norm": "dyt", "steps": 100, "lr": 0.003}}]; or a YAML file',
    )
    baseline: str | None = setting(None, "the variant that others are tested against (the first)", WHAT)
    metric_direction: str | None = setting(
        None,
        "which values of a module:function are better (its attribute higher_is_better)",
        BY,
        choices=DIRECTIONS,
        python="which values of a measure of your own are better (its attribute higher_is_better)",
    )
    twin: bool = setting(
        False, "also train the baseline from another start, to see what chance gives", BY, inherited=False
    )
    out: str = setting(
        WHERE,
        "folder for logs and report ({default})",
        PLACE,
        metavar="DIR",
        flags=("-o", "--out", "--output"),
        inherited=False,
    )
    fresh: bool = setting(False, "delete the comparison that is there, and begin again", PLACE, inherited=False)
    retry: bool = setting(False, "run those again that crashed", PLACE, inherited=False)
    trust: bool = setting(
        False,
        "import the code that the plan in DIR names (module:name), also where this command does not name it",
        PLACE,
        inherited=False,
    )


METAVARS = {int: "N", float: "X", str: "NAME"}
KINDS = {"int": int, "float": float, "bool": bool, "str": str}


def read_options(of: type) -> dict[str, Option]:
    """Return what is known of each field of a class, by the field's name."""
    return {
        f.name: dataclasses.replace(
            f.metadata["option"],
            name=f.metadata["option"].name or f.name,
            many="tuple" in str(f.type),
            kind=KINDS[str(f.type).removeprefix("tuple[").split(" |")[0].split(",")[0]],
        )
        for f in dataclasses.fields(of)
    }


FIELDS = read_options(Settings)
OWN = {one.name: one for one in (*FIELDS.values(), *read_options(Call).values()) if one.group}
HANDED = tuple(name for name, one in OWN.items() if one.handed)


def fields(**wanted: Any) -> list[str]:
    """Return the names of the settings of which all this is true.

    >>> fields(resuming="more")
    ['seeds', 'steps', 'seconds']
    """
    return [name for name, one in FIELDS.items() if all(getattr(one, key) == value for key, value in wanted.items())]


def deciding(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings that decide a run's numbers."""
    return {name: values[name] for name in fields(role=RUN)}


def afterwards(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what trained models are put to; none where they are put to nothing.

    >>> afterwards(vars(Settings())), afterwards(vars(Settings(quant=("nearest",))))
    ({}, {'quant': ('nearest',), 'bits': (4, 3, 2)})
    """
    return {name: values[name] for first, *more in LATER_OF for name in (first, *more) if values.get(first)}


LATER_OF = (("shift", "adapt", "stream"), ("quant", "bits"))  # what each of the first needs


def paces(steps: int) -> dict[str, Any]:
    """Return how often a run of a length is logged, evaluated and probed."""
    every = max(1, steps // 40)
    return {"log_every": every, "eval_every": 5 * every, "probe_every": 5 * every}


def full(of: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a variant or of settings; what was written before there was a field has its default."""
    defaults = {f.name: f.default for f in dataclasses.fields(of) if f.default is not dataclasses.MISSING}
    return json.loads(json.dumps({**defaults, **values}))


def plural(name: str) -> str:
    """Return the name of several.

    >>> plural("norm"), plural("loss")
    ('norms', 'losses')
    """
    return f"{name}es" if name.endswith("s") else f"{name}s"


def flag(name: str) -> str:
    """Return an option as the command line has it."""
    return f"--{name.replace('_', '-')}"


def argument(name: str) -> str:
    """Return an option as an argument of Python: what varies is in the plural."""
    return name if name in OWN else plural(name)


_python = ContextVar("python", default=False)


def spell(name: str) -> str:
    """Return an option as the user types it."""
    return argument(name) if _python.get() else flag(name)


def another_folder() -> str:
    """Say what helps where a folder cannot be taken."""
    return f"name another folder with {spell('out')}"


@contextmanager
def in_python() -> Iterator[None]:
    """Within it, the user speaks Python."""
    token = _python.set(True)
    try:
        yield
    finally:
        _python.reset(token)
