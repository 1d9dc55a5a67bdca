"""What there is to say of a method, gathered from its card and docstring: ``normkit show`` and the site print it."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from normkit import catalog
from normkit.catalog import CONTRACT, Card
from normkit.kinds import Subject
from normkit.kinds.arguments import read
from normkit.layout import Layout

AXES = {
    "N": "samples",
    "C": "channels or features",
    "T": "time steps or tokens",
    "L": "positions",
    "H": "height",
    "W": "width",
    "B": "batch",
    "...": "any leading axes",
    "*": "any further axes",
    "+": "one or more further axes",
}
PLACES = {"...": "leading index", "*": "position", "+": "position"}
ALONE = ("norm", "layer", "transform", "parametrization")  # kinds that map their input to another of its shape
WIDTH, WIDTHS = 768, {"head_dim": 64}  # in an example
FILL = {"whole": "█", "part": "▒", "none": "░"}
STEP, SHADES = ("the gradient", "the first step"), " ░▒▓█"  # of an optimizer, from the smallest entries to the largest
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # between the words of a class's name
ROLE = re.compile(r":(?:class|func|meth|mod|attr):(?=`)|(?<=`)~[\w.]+\.(?=\w+`)")  # and the way to a name's module
ARGUMENT = re.compile(r"^    ([\w*`, ]+?): (.*(?:\n {5,}.*)*)", re.MULTILINE)  # of one parameter or several
SECTION = re.compile(r"^(\w[\w ]*):$")


@dataclass(frozen=True)
class Argument:
    """A parameter of the constructor: its default as it is typed, or ``required``, and what it means."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Entry:
    """A line of ``state_dict``: its shape in terms of C where it follows C."""

    name: str
    shape: str
    kind: str


@dataclass(frozen=True)
class Axis:
    """An axis of the input, and how much of it one statistic spans: the whole, a part (``C/G``), or none."""

    name: str
    meaning: str
    spanned: str


def explanation(card: Card) -> str:
    """Return the docstring below its first line, without the list of arguments and the roles before names."""
    text = ROLE.sub("", card.docstring.partition("\n")[2])
    kept = [block for name, block in _blocks(text) if name != "Args"]
    return "\n\n".join(block.strip("\n") for block in kept if block.strip()).strip("\n")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Cut a docstring into its sections; text outside of any has the empty name."""
    name = ""
    lines: list[str] = []
    for line in text.split("\n"):
        heading = SECTION.match(line)
        ended = name and line and not line.startswith(" ")
        if heading or ended:
            yield name, "\n".join(lines)
            name, lines = (heading[1], []) if heading else ("", [])
            if heading:
                continue
        lines.append(line)
    yield name, "\n".join(lines)


def arguments(card: Card) -> list[Argument]:
    """Return the constructor's parameters in order, each with what the docstring says of it."""
    meanings = _meanings(card)
    return [
        Argument(name, "required" if p.default is p.empty else repr(p.default), meanings.get(name, ""))
        for name, p in card.signature.parameters.items()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]


def aliases(card: Card) -> list[tuple[str, str]]:
    """Return the other names of a method, each with what it brings."""
    return [(name, write(brought)) for name, brought in card.aliases.items()]


def synonyms(card: Card) -> list[str]:
    """Return what people call a method: its names, and those of other libraries, as words and written out.

    >>> import normkit as nk
    >>> synonyms(nk.card("qk-norm"))
    ['qk norm', 'qk normalization', 'query key norm', 'query key normalization']
    """
    ours = (card.name, getattr(card.entry, "__name__", ""), *card.aliases)
    theirs = (re.split(r"[. ]", form)[-1] for form in card.called)
    words = [re.sub(r"[-_]", " ", CAMEL.sub(" ", name)).lower() for name in (*ours, *theirs)]
    return list(dict.fromkeys(form for name in words for form in (name, re.sub(r" ?norm\b", " normalization", name))))


def write(arguments: Mapping[str, Any]) -> str:
    """Write arguments as they are typed."""
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def forms(card: Card) -> list[tuple[str, str]]:
    """Return the classes whose arguments the method takes as well, each with these, and ours where ours is another.

    >>> import normkit as nk
    >>> forms(nk.card("groupnorm"))[0]
    ('torch.nn.GroupNorm', 'num_groups, num_channels (num_features), eps, affine, device, dtype')
    """
    return [
        (owner, ", ".join(their if their == our else f"{their} ({our})" for their, our in read(form).items()))
        for owner, form in card.called.items()
    ]


def _meanings(card: Card) -> dict[str, str]:
    """Read the ``Args`` section, where a line may speak of several parameters: ``affine, bias: ...``."""
    meanings = {"device": "where the parameters are made.", "dtype": "the type of the parameters."}
    text = "\n".join(block for name, block in _blocks(card.docstring) if name == "Args")
    for names, meaning in ARGUMENT.findall(text):
        for name in re.split(r",\s*", names.replace("`", "").replace("*", "")):
            meanings[name.strip()] = ROLE.sub("", " ".join(meaning.split()))
    return meanings


def axes(card: Card) -> list[Axis]:
    """Return the axes of the first input in order, each with how much of it a statistic spans."""
    letters = [_letter(axis) for axis in card.shape.axes]
    h = AXES["H"] if "W" in letters else "heads" if "T" in letters else "hidden features"
    words = AXES | {"H": h}
    return [Axis(a, words.get(_letter(a), ""), _span(a, card.over)) for a in card.shape.axes]


def _span(axis: str, over: str) -> str:
    names = over.replace("+", "*").split()
    if axis.replace("+", "*") in names:
        return "whole"
    return "part" if any(name.startswith(f"{axis}/") for name in names) else "none"


def _letter(axis: str) -> str:
    match = re.fullmatch(r"\d*([A-Z])(-\d+)?", axis)
    return match[1] if match else axis


def drawing(card: Card) -> str:
    """Draw the axes in text, filled where a statistic spans them, half filled where it spans a part.

    >>> import normkit as nk
    >>> print(drawing(nk.card("powernorm")))
      T     N     C
    █████ █████ ░░░░░
    """
    shown = [(axis.name, axis.spanned) for axis in axes(card)]
    shown += [(name, "whole") for name in _beyond(card)]
    names = [name for name, _ in shown]
    width = max([5, *map(len, names)])
    boxes = [FILL[spanned] * width for _, spanned in shown]
    return " ".join(name.center(width) for name in names).rstrip() + "\n" + " ".join(boxes)


def _beyond(card: Card) -> list[str]:
    """Axes of a statistic that further inputs have and the first has not: the keys of attention.

    >>> import normkit as nk
    >>> _beyond(nk.card("softmax")), _beyond(nk.card("groupnorm"))
    (['S'], [])
    """
    theirs = {axis for layout in card.inputs.values() for axis in layout.axes}
    return [axis for axis in card.over.split() if axis in theirs and axis not in card.shape.axes]


def key(card: Card) -> str:
    """Say what the fillings of the drawing mean; nothing where all axes are empty.

    >>> import normkit as nk
    >>> key(nk.card("groupnorm"))
    'one statistic: █ of the whole axis, ▒ of a part, ░ of one index'
    """
    spanned = {axis.spanned for axis in axes(card)} | {"whole" for _ in _beyond(card)}
    words = {"whole": "of the whole axis", "part": "of a part", "none": "of one index"}
    shown = [f"{FILL[span]} {meaning}" for span, meaning in words.items() if span in spanned]
    return f"one statistic: {', '.join(shown)}" if spanned - {"none"} else ""


def statistic(card: Card) -> str:
    """Say in words what a statistic is taken over, as far as it holds when an entry of the input is changed.

    >>> import normkit as nk
    >>> statistic(nk.card("batchnorm"))
    'statistics of each C, taken over N and all positions'
    >>> statistic(nk.card("groupnorm"))
    'statistics of each N and group of C, taken over the C of a group and all positions'
    >>> statistic(nk.card("switchable-norm"))
    'statistics taken over N and all positions; an entry moves outputs along C too'
    >>> statistic(nk.card("derf"))
    'no statistic: every number is mapped by itself'
    >>> statistic(nk.card("muon"))
    ''
    """
    if not card.shape.axes:
        return ""
    moved, spans = reach(card.name) or {}, axes(card)
    moving = {name for name, way in moved.items() if way != "none"}
    if not card.over:
        return _of_none(card, moved)
    further = [_along(axis.name) for axis in spans if axis.spanned == "none" and axis.name in moving]
    inside = _inside(spans, moving)
    if not moved or further or not inside:
        return f"statistics taken over {over(card)}{_naming('; an entry moves outputs along {} too', further)}"
    return _of_each(spans, moved, inside)


def _of_none(card: Card, moved: Mapping[str, str]) -> str:
    """The words for a method without a statistic, where no entry moves outputs at other places."""
    alone = moved and set(moved.values()) == {"none"} and card.kind.name in ALONE
    return "no statistic: every number is mapped by itself" if alone else ""


def _inside(spans: list[Axis], moving: set[str]) -> list[Axis]:
    """The axes that one statistic is taken over: the groups, and what an entry moves outputs along."""
    return [axis for axis in spans if axis.spanned == "part" or (axis.spanned == "whole" and axis.name in moving)]


def _of_each(spans: list[Axis], moved: Mapping[str, str], inside: list[Axis]) -> str:
    """The words for statistics of each group, or each index of the axes that no entry moves outputs along."""
    crossed = [axis for axis in inside if axis.spanned == "whole"]
    each = [f"group of {a.name}" if a.spanned == "part" else _one(a.name) for a in spans if a not in crossed]
    ordered = [axis for axis in ("N", "T") if moved.get(axis) == "later"]
    kept = [_all(axis.name) for axis in spans if axis.spanned == "whole" and axis not in crossed]
    return "".join(
        [
            f"statistics {_naming('of each {}, ', each)}taken over {_list([_words_of(axis) for axis in inside])}",
            _naming(", in the order of {}", ordered),
            _naming("; what is kept is taken over {} too", kept),
        ]
    )


def _naming(phrase: str, names: list[str]) -> str:
    """A phrase with names in it; nothing where there are none."""
    return phrase.format(_list(names)) if names else ""


@functools.cache
def reach(name: str) -> dict[str, str] | None:
    """Of each axis of the first input, whether a changed entry moves outputs at other places: none, later or whole.

    Found on a small instance by changing entries; None where outputs have another shape, or none of them moves.

    >>> reach("rmsnorm"), reach("onlinenorm")
    ({'...': 'none', 'C': 'whole'}, {'N': 'later', 'C': 'none', '*': 'whole'})
    """
    card = catalog.card(name)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            before, inputs = _outputs(card), _draw(card).inputs
            if before.shape != inputs[0].shape or not inputs[0].is_floating_point():
                return None
            last = inputs[0].numel() - 1
            sources = {last * part // 7 for part in range(8)}
            changes = [(at, _outputs(card, at, by) != before) for at in sources for by in (0.37, 30.0)]
        except (ValueError, TypeError, RuntimeError, AttributeError, IndexError):  # no input, or not a tensor
            return None
    shape = inputs[0].shape
    steps = [step for at, changed in changes for step in changed.nonzero() - _place(at, shape)]
    if not steps:  # it is hidden, or rounded away
        return None
    dims = _dims(card.shape.axes, len(shape))
    return {axis: _direction([int(step[dim]) for step in steps for dim in own]) for axis, own in dims.items()}


def _draw(card: Card) -> Subject:
    """A small instance whose parameters were moved off their first values, and inputs for it."""
    torch.default_generator.manual_seed(0)  # torch's own function keeps a trace of every call for the GPUs
    subject = card.kind.subject(card, seed=1, trailing=(3, 4), optional=True)
    with torch.no_grad():
        for parameter in () if card.kind.name == "optimizer" else subject.learned.values():
            parameter.add_(0.2 * torch.rand(parameter.shape, dtype=torch.float64).to(parameter.dtype))
    return subject


def _outputs(card: Card, at: int = 0, by: float = 0.0) -> torch.Tensor:
    """The first output, with an entry of the first input changed."""
    subject = _draw(card)
    x = subject.inputs[0].clone(memory_format=torch.contiguous_format)
    x.view(-1)[at] += by
    torch.default_generator.manual_seed(1)
    returned = subject.call(x, *subject.inputs[1:])
    return (returned[0] if isinstance(returned, tuple | list) else returned).detach()


def _place(at: int, shape: torch.Size) -> torch.Tensor:
    return torch.stack(torch.unravel_index(torch.tensor(at), shape))


def _dims(names: tuple[str, ...], count: int) -> dict[str, range]:
    """Which dimensions each axis stands for; one of them may stand for several."""
    run = next((i for i, name in enumerate(names) if name in PLACES), len(names))
    more = count - len(names)
    starts = [i + more * (i > run) for i in range(len(names))]
    return {name: range(at, at + 1 + more * (i == run)) for i, (name, at) in enumerate(zip(names, starts, strict=True))}


def _direction(steps: list[int]) -> str:
    """Where outputs moved along an axis, as seen from the entry that was changed."""
    return "whole" if min(steps, default=0) < 0 else "later" if max(steps, default=0) > 0 else "none"


def over(card: Card) -> str:
    """Name what a statistic is taken over; nothing where there is none.

    >>> import normkit as nk
    >>> over(nk.card("batchnorm"))
    'N and all positions'
    """
    spanned = [a for a in axes(card) if a.spanned != "none"]
    words = [_words_of(axis) for axis in spanned]
    return _list(words or card.over.split()) if card.over else ""


def _one(axis: str) -> str:
    return PLACES.get(axis, axis)


def _words_of(axis: Axis) -> str:
    return f"the {axis.name} of a group" if axis.spanned == "part" else _all(axis.name)


def _along(axis: str) -> str:
    return {"...": "the leading axes", "*": "the positions", "+": "the positions"}.get(axis, axis)


def _all(axis: str) -> str:
    return {"...": "all leading indices", "*": "all positions", "+": "all positions"}.get(axis, axis)


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def legend(card: Card) -> list[str]:
    """Say what the axis names stand for."""
    return [f"{axis.name}: {axis.meaning}" for axis in axes(card) if axis.meaning]


def inputs(card: Card) -> list[tuple[str, Layout, bool]]:
    """Return name, layout and whether it may be left out, for every input of a call."""
    first = next(iter(card.kind.takes(card)), None)
    if first is None:
        return []
    further = [(name, layout, layout.optional) for name, layout in card.inputs.items()]
    return [(first, card.shape, False), *further]


def state(card: Card) -> list[Entry]:
    """Return what a checkpoint holds, found by building the method at three widths."""
    built = [card.kind.saved(subject) for subject in _at_three_widths(card)]
    shapes = {name: _shape([tuple(b.get(name, built[0][name])[0].shape) for b in built]) for name in built[0]}
    return [Entry(name, shapes[name], "learned" if learned else "kept") for name, (_, learned) in built[0].items()]


def _at_three_widths(card: Card) -> list[Any]:
    """Build at C = 8, 16 and 24, or where the example fits one width alone, three times at that."""
    with torch.random.fork_rng(devices=[]):
        try:
            return [card.small(width) for width in (8, 16, 24)]
        except (ValueError, TypeError, RuntimeError):
            return [card.small()] * 3


def _shape(seen: list[tuple[int, ...]]) -> str:
    if len({len(shape) for shape in seen}) > 1:
        return str(seen[0])
    sizes = [_size(*along) for along in zip(*seen, strict=True)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _size(at_8: int, at_16: int, at_24: int) -> str:
    """Write a size as a multiple of C plus a rest, where three widths agree on that."""
    slope = Fraction(at_16 - at_8, 8)
    rest = at_8 - slope * 8
    if at_24 != slope * 24 + rest or slope == 0:
        return str(at_8) if slope == 0 and at_24 == at_8 else "C²" if at_8 == 64 and at_24 == 576 else "varies"
    times = "" if slope.numerator == 1 else str(slope.numerator)
    part = "" if slope.denominator == 1 else f"/{slope.denominator}"
    return f"{times}C{part}" + (f"{int(rest):+d}" if rest else "")


def usage(card: Card, width: int = WIDTH) -> str:
    """Write the lines that build and call the method, as they are typed, for so many features.

    >>> import normkit as nk
    >>> print(usage(nk.card("powernorm")))
    import normkit as nk
    <BLANKLINE>
    norm = nk.PowerNorm(768)  # or nk.create("powernorm", 768)
    y = norm(x)  # x: (T, N, C); optional: pad_mask (N, T)
    """
    arguments = _example_arguments(card, width)
    required = [name for name, _, optional in inputs(card) if not optional]
    shapes = [f"{name}: {_tuple(layout)}" for name, layout, optional in inputs(card) if not optional]
    spare = [f"{name} {_tuple(layout)}" for name, layout, optional in inputs(card) if optional]
    note = ", ".join(shapes) + (f"; optional: {', '.join(spare)}" if spare else "")
    imports = "import torch\n\nimport normkit as nk" if "torch." in arguments else "import normkit as nk"
    module = card.entry.__module__
    imports += "" if module.startswith("normkit.") else f"\nimport {module}"
    return f"{imports}\n\n{card.kind.use(card, arguments, ', '.join(required))}  # {note}".removesuffix("  # ")


def _example_arguments(card: Card, features: int) -> str:
    width = card.width
    size = "" if width is None else str(min(features, WIDTHS.get(width.name, features)))
    arguments = [] if width is None else [f"{width.name}={size}" if width.kind is width.KEYWORD_ONLY else size]
    shown = [f"{k}={_make(value, features) if callable(value) else repr(value)}" for k, value in card.example.items()]
    return ", ".join(arguments + shown)


def _make(build: Callable[[int], object], features: int) -> str:
    """An example that is a function stands for something of the user's: a module, one of torch's, or a size."""
    subject = build(features)
    return f"torch.nn.{subject!r}" if isinstance(subject, nn.Module) else repr(subject)


def _tuple(layout: Layout) -> str:
    return "(" + ", ".join(layout.axes) + ")"


def evidence(card: Card) -> str:
    """Say where the numbers come from that the method is compared with.

    >>> evidence(catalog.card("evonorm-b1"))
    "recorded from another library's code: no authors' code; as in timm"
    """
    return ": ".join(filter(None, [catalog.EVIDENCE.get(card.evidence, ""), card.provenance]))


def exemptions(card: Card) -> list[tuple[str, str]]:
    """Return what the method does not keep of the contract, and in which cases, each with its reason."""
    return [(_case(*key.split()), reason) for key, reason in card.exempt.items()]


def _case(line: str, *words: str) -> str:
    return f"{CONTRACT[line]} ({', '.join(words)})" if words else CONTRACT[line]


def rooms(cards: list[Card]) -> dict[str, list[Card]]:
    """Group cards by their folder, ``room`` or ``room/group``."""
    groups: dict[str, list[Card]] = {}
    for card in sorted(cards, key=folder):
        groups.setdefault(folder(card), []).append(card)
    return groups


def folder(card: Card) -> str:
    """Return the folder that a method's file lies in, below ``normkit``."""
    return "/".join(filter(None, [card.room, card.group]))


def meaning_of(folder: str, load: Callable[[str], object]) -> str:
    """Return what a folder holds: the first line of its package's docstring; nothing of another package's own room."""
    if not (catalog.HOME / folder).is_dir():
        return ""
    return (inspect.getdoc(load("normkit." + folder.replace("/", "."))) or "").partition("\n")[0]


def form(card: Card) -> str:
    """Tell whether a method is a class or a function."""
    return "class" if isinstance(card.entry, type) else "function"


def first_step(card: Card) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A gradient whose rows, columns and singular values are unequal, and the step that an optimizer takes from it."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        subject = card.small(6)
        weight = next((p for group in subject.param_groups for p in group["params"] if p.ndim == 2), None)
        if weight is None:
            return None
        for group in subject.param_groups:
            group.update({key: 0.0 for key in ("weight_decay",) if key in group})
            for p in group["params"]:
                p.grad = torch.randn_like(p) * 0.1
        gradient = torch.randn(weight.shape, dtype=torch.float64)
        for axis, (least, most) in enumerate([(0, -1), (-0.8, 0)]):
            lengths = torch.logspace(least, most, weight.shape[axis], dtype=torch.float64)
            gradient = gradient * (lengths if axis else lengths[:, None])
        weight.grad = gradient.to(weight.dtype)
        before = weight.detach().clone()
        try:
            subject.step()
        except (TypeError, RuntimeError, ValueError):
            return None
    step = (before - weight.detach()).double()
    return (gradient, step) if step.isfinite().all() and step.abs().max() else None


def spread_in_words(before: torch.Tensor, after: torch.Tensor) -> str:
    """Say how unequal lengths and entries are before and after a step."""
    parts = [f"{what} {a:.3g} → {f'{b:.3g}' if b < 1e6 else 'some are 0'}" for what, a, b in spreads(before, after)]
    return f"largest over smallest, before and after the step: {'; '.join(parts)}"


def spreads(before: torch.Tensor, after: torch.Tensor) -> list[tuple[str, float, float]]:
    """How many times the largest is the smallest: of entries, lengths of rows and columns, and singular values."""
    measures: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "entries": torch.abs,
        "rows": lambda x: x.norm(dim=1),
        "columns": lambda x: x.norm(dim=0),
        "singular values": torch.linalg.svdvals,
    }
    return [
        (name, *(float(of(x).max() / of(x).min().clamp_min(1e-12)) for x in (before, after)))  # type: ignore[misc]
        for name, of in measures.items()
    ]


def levels(matrix: torch.Tensor) -> list[list[int]]:
    """The entries of a matrix in five shades of the root of their sizes.

    >>> levels(torch.tensor([[0.0, 0.1, 1.0]]))
    [[0, 1, 4]]
    """
    level = 5 * (matrix.abs() / matrix.abs().max()).sqrt()
    return level.clamp(max=4).to(torch.int64).tolist()


def draw_step(card: Card) -> list[str]:
    """Draw the gradient and the first step in shades, side by side, with how unequal they are in words."""
    step = first_step(card)
    if step is None:
        return []
    sides = [["".join(2 * SHADES[level] for level in row) for row in levels(matrix)] for matrix in step]
    rows = [(f"│{before}│", f"│{after}│") for before, after in zip(*sides, strict=True)]
    wide = max(len(STEP[0]), len(rows[0][0]))
    lines = [f"{before:{wide}}   {after}".rstrip() for before, after in [STEP, *rows]]
    return [*lines, spread_in_words(*step)]
