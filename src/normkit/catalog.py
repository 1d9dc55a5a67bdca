"""The catalogue: one card a method, and the way from a name to a method.

The folders are the index: a file that carries the decorator :func:`method` is a method of the same name, the folder
that it lies in its room, and it is imported when it is first asked for. Everything that lists, builds, documents, tests
or times methods reads the cards; nothing else keeps a list. Other packages enter theirs by the same decorator.

    >>> import normkit as nk
    >>> nk.create("rmsnorm", 8)  # doctest: +ELLIPSIS
    RMSNorm(8, eps=1e-06, p=1.0, affine=True, bias=False, offset=0.0, ...)
    >>> nk.card("rmsnorm").over
    'C'
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import nn

from normkit import check
from normkit.choice import module_name, parsed
from normkit.kinds import CONTRACT, Kind, exemption, kind_of
from normkit.kinds.arguments import near, nearest
from normkit.layout import Layout
from normkit.loading import own_file

HOME = Path(__file__).parent
ENTRY_POINTS = "normkit.methods"
DECORATOR = b"\n@method("
NAME = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*")
EVIDENCE = {
    "authors": "recorded from the authors' code",
    "library": "recorded from another library's code",
    "equations": "written a second time in float64, from the paper or the authors' code",
    "abstract": "rebuilt, since the paper could not be read in full",
}

_cards: dict[str, Card] = {}
_classes: dict[str, type] = {}  # of aliases that are written as one


@dataclass(frozen=True)
class Card:
    """What the library knows of a method besides its mathematics.

    ``entry`` is the class or function, ``room`` and ``group`` are the folders that it is in, ``paper`` is where it
    is from. ``shape`` is the :class:`Layout` of the first input; ``over`` names the axes that a statistic is taken
    over, and is empty where there is no statistic. ``inputs`` lays out the further inputs by name. ``example``
    holds the keyword arguments that a smallest instance needs. ``aliases`` are other names, each with the arguments
    that make the method what the name says; one that is written as a class is one, ``nk.InstanceNorm2d``.
    ``called`` holds other libraries' classes that it replaces, each with its arguments in order, which the method
    takes as well: ``"normalized_shape=dim eps"``, their name = ours where they differ. ``dialects`` holds the
    arguments by which other people's code differs, each with its values, or "any": what recognition tries.
    ``exempt`` holds the cases of the contract that the method cannot keep, each with its reason; see
    :meth:`exemption`. ``peer`` builds, from a feature count, another library's module for the same numbers: what
    the benchmark races and a test compares with. ``around`` puts the method around a whole model where it is not
    built so: what ``nk.adapt`` calls with the model and options. ``invariant`` names what the result does not
    change with. ``messages`` says why it sends more than one message in a pass over many processes, or gathers,
    where it does. ``evidence`` is a key of ``EVIDENCE``: where the numbers come from that it is compared with;
    empty where nothing is said. ``provenance`` is a sentence more.
    """

    name: str
    entry: Any
    paper: str
    shape: Layout
    over: Layout
    inputs: Mapping[str, Layout] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)
    dialects: Mapping[str, Any] = field(default_factory=dict)
    invariant: tuple[str, ...] = ()
    provenance: str = ""
    evidence: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict)
    peer: Callable[[int], nn.Module] | None = None
    around: Callable[..., Any] | None = None
    room: str = ""
    group: str = ""
    messages: str = ""

    @functools.cached_property
    def kind(self) -> Kind:
        """How it is built and called, and which lines of the contract can be asked of it."""
        return kind_of(self.entry)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the kind, of which each process has its own."""
        return {key: value for key, value in vars(self).items() if key != "kind"}

    @property
    def module(self) -> str:
        """The module that the method is written in."""
        return self.entry.__module__

    @property
    def docstring(self) -> str:
        """What is written of the method itself; empty where nothing is, whatever its base says."""
        return inspect.cleandoc(self.entry.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of the docstring: what the method does to the numbers."""
        return self.docstring.split("\n", 1)[0]

    @property
    def signature(self) -> inspect.Signature:
        """What :func:`create` takes after the name."""
        return self.kind.signature(self.entry)

    @property
    def width(self) -> inspect.Parameter | None:
        """The argument that takes the feature count and must be given, or None."""
        return self.kind.width(self)

    def arguments(self, features: int = 8, **overrides: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that build a smallest instance."""
        return self.kind.arguments(self, features, **overrides)

    def small(self, features: int = 8, **overrides: Any) -> Any:
        """Build a smallest instance: the feature count, the example arguments, and ``overrides``."""
        return self.kind.small(self, features, **overrides)

    def draw(self, features: int = 8, batch: int = 4, **options: Any) -> list[Any]:
        """Draw the inputs of one call; see :meth:`normkit.kinds.Kind.draw`."""
        return self.kind.draw(self, features, batch, **options)

    def exemption(self, line: str, *case: str) -> str | None:
        """Return why a case of a line of the contract is not kept, or None; see :func:`normkit.kinds.exemption`."""
        return exemption(self.exempt, line, *case)

    def held_to(self, line: str) -> bool:
        """Whether a line of the contract can be asked of it at all."""
        if line not in CONTRACT:
            raise ValueError(f"no line {line!r} in the contract; the lines are {', '.join(CONTRACT)}")
        return line in self.kind.lines

    @property
    def spans_samples(self) -> bool:
        """Whether a statistic is taken over samples, so that the result of one depends on the others."""
        samples = self.shape.samples
        return samples is not None and self.shape.axes[samples] in {axis.partition("/")[0] for axis in self.over.axes}

    @property
    def by_row(self) -> bool:
        """Whether a result is made of one row alone, so that the line "batches" of the contract is asked of it."""
        return self.held_to("batches") and self.shape.samples is not None and not self.spans_samples

    @property
    def batch_invariant(self) -> bool:
        """Whether a row has the same bits in any batch: the line "batches" of the contract is asked of it and kept."""
        broken = [key for key in self.exempt if key.startswith("batches") and not key.endswith(("order", "gains"))]
        return self.by_row and not broken


Entry = TypeVar("Entry", bound=Callable[..., Any])


def method(
    name: str,
    *,
    paper: str = "",
    shape: str = "... C",
    over: str = "",
    inputs: Mapping[str, str] | None = None,
    example: Mapping[str, Any] | None = None,
    replaces: tuple[str, ...] = (),
    aliases: Mapping[str, Mapping[str, Any]] | tuple[str, ...] = (),
    called: Mapping[str, str] | None = None,
    dialects: Mapping[str, Any] | None = None,
    invariant: tuple[str, ...] = (),
    provenance: str = "",
    evidence: str | None = None,
    exempt: Mapping[str, str] | None = None,
    peer: Callable[[int], nn.Module] | None = None,
    around: Callable[..., Any] | None = None,
    messages: str = "",
    room: str | None = None,
) -> Callable[[Entry], Entry]:
    """Enter a class or a function into the catalogue under ``name``; see :class:`Card` for the fields.

    The name of an input that ends in ``?`` may be left out. A module also learns to take ``device`` and ``dtype``, as
    torch's modules do. Methods of other packages, scripts and notebooks are entered in the same way: those of a package
    are found without an import where it declares ``[project.entry-points."normkit.methods"]``, a name of your own =
    the module that holds them; ``room`` says where they belong (by default where their kind does). ``evidence`` is
    "authors" for the package's own, and nothing for others, unless given.

    Args:
        name: what it is called, in small letters with hyphens.
        paper: title, authors, year and number.
        shape: the layout of the first input.
        over: the axes that a statistic is taken over.
        inputs: layouts of the further inputs, by name.
        example: the arguments of a smallest instance.
        replaces: the methods whose place it takes.
        aliases: other names, each with its arguments.
        called: classes of other libraries, each with its arguments in order.
        dialects: the arguments by which other people's code differs.
        invariant: what the result does not change with.
        provenance: a sentence on where its numbers are from.
        evidence: a key of ``EVIDENCE``.
        exempt: lines of the contract that it cannot keep, with the reason.
        peer: builds another library's module for the same numbers.
        around: puts the method around a whole model.
        messages: why it sends more than one message in a pass over many processes, where it does.
        room: the room that it belongs to.
    """
    if not isinstance(name, str):
        raise TypeError(f'method: a name comes first, as in @method("my-norm"), not {name!r}')
    if not NAME.fullmatch(name):
        raise ValueError(
            f'method: name must be letters, digits, and hyphens between them, as in "my-norm", not {name!r}'
        )
    for field_name, names in (("replaces", replaces), ("aliases", aliases), ("invariant", invariant)):
        if isinstance(names, str):
            raise TypeError(f"{name}: {field_name} must be a tuple, ({names!r},), not {names!r}")
    reasons = exempt or {}
    _check_lines(name, reasons, CONTRACT)

    def enter(entry: Entry) -> Entry:
        kind = kind_of(entry)
        entry = kind.entered(entry)
        at = _homes().get(entry.__module__)
        _check_free(name, entry, at)
        _check_lines(name, reasons, kind.lines)
        others = {key.rstrip("?"): Layout(text, key.endswith("?")) for key, text in (inputs or {}).items()}
        known = "authors" if at else ""
        source = known if evidence is None else check.choice(name, "evidence", evidence, tuple(EVIDENCE))
        _cards[name] = card = Card(
            name,
            entry,
            paper,
            Layout(shape),
            Layout(over),
            others,
            example or {},
            replaces,
            aliases if isinstance(aliases, Mapping) else {other: {} for other in aliases},
            called or {},
            dialects or {},
            invariant,
            provenance,
            source,
            reasons,
            peer,
            around,
            at.room if at else room or kind.room,
            at.group if at else "",
            messages,
        )
        kind.prepare(entry, card)
        return entry

    return enter


def _check_lines(name: str, exempt: Mapping[str, str], lines: Mapping[str, str]) -> None:
    unknown = sorted({key.split()[0] for key in exempt} - set(lines))
    if unknown:
        raise ValueError(f"{name}: exempt names no line of the contract: {unknown}; the lines are {sorted(lines)}")


class _Place(NamedTuple):
    """Where a method's file is."""

    module: str
    room: str
    group: str
    path: Path


@functools.cache
def _files() -> dict[str, _Place]:
    """Every method's file, by its name; nothing is imported."""
    places = {}
    for folder, _, names in sorted(os.walk(HOME)):  # and `open`: in half the time of pathlib
        room, *groups = folder[len(str(HOME)) + 1 :].split(os.sep)
        for name in sorted(names) if room else ():
            if name[0] == "_" or not name.endswith(".py"):
                continue
            with open(f"{folder}{os.sep}{name}", "rb", buffering=0) as file:
                text = file.read()
            if DECORATOR in text:
                module = ".".join(["normkit", room, *groups, name[:-3]])
                places[name[:-3].replace("_", "-")] = _Place(module, room, "/".join(groups), Path(folder, name))
    return places


@functools.cache
def _texts() -> dict[str, str]:
    """Every method's file, as words are compared."""
    return {name: comparison_key.__wrapped__(place.path.read_text("utf-8")) for name, place in _files().items()}


@functools.cache
def _homes() -> dict[str, _Place]:
    """Every module of a room, by its name."""
    return {place.module: place for place in _files().values()}


def _check_free(name: str, entry: Any, at: _Place | None) -> None:
    """Require a name that is no other method's; a cell of a notebook may be run again."""
    if at is not None and _files().get(name) != at:
        raise ValueError(f"{at.module}: the method in it is called {name!r}; file and method have one name")
    known = _name_among(name, _files()) or _name_among(name, _cards)
    if known is None:
        return
    holder = _cards[known].module if known in _cards else _files()[known].module
    same = known in _cards and _cards[known].entry.__qualname__ == entry.__qualname__
    if not (holder == entry.__module__ and (same or known not in _cards)):
        raise ValueError(f"the name {name!r} is taken by {holder}")


def others() -> list[Card]:
    """Return the cards of the methods that scripts, notebooks and other packages entered in this process."""
    return [card for card in _cards.values() if _homes().get(card.module) is None]


def take_in(card: Card) -> None:
    """Enter a card that another process has made."""
    _cards.setdefault(card.name, card)


@functools.cache
def _load_others() -> None:
    """Import what other installed packages declare; one that fails is named and left out."""
    import warnings
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            warnings.warn(f"methods of {point.value} could not be loaded: {error!r}", stacklevel=2)


def rooms() -> list[str]:
    """Return what is normalized, a room each; beside the package's own those that other packages' methods are in."""
    return sorted({*(place.room for place in _files().values()), *(card.room for card in _cards.values())})


def methods(pattern: str = "*", *, room: str | None = None, group: str | None = None) -> list[str]:
    """Return the names of the catalogue, sorted, narrowed by a wildcard pattern, a room or a group of a room.

    >>> methods("*evonorm-b*")
    ['evonorm-b0', 'evonorm-b1', 'evonorm-b2']
    """
    _load_others()
    known = {name: (place.room, place.group) for name, place in _files().items()}
    known |= {name: (card.room, card.group) for name, card in _cards.items()}
    if room is not None and room not in rooms():
        raise ValueError(f"no room {room!r}; the rooms are {', '.join(rooms())}")
    groups = sorted({own for at, own in known.values() if room in (None, at)} - {""})
    if group is not None and group not in groups:
        kept = f"the groups are {', '.join(groups)}" if groups else f"the room {room} has none"
        raise ValueError(f"no group {group!r}; {kept}")
    return sorted(
        name
        for name, (at, own) in known.items()
        if fnmatch.fnmatchcase(name, pattern) and room in (None, at) and group in (None, own)
    )


def card(name: str) -> Card:
    """Return the card of a method; a name that does not exist gets the nearest ones in the error."""
    return find(name).card


class Choice(NamedTuple):
    """What a name means: a card, and the arguments that were written with the name or that its alias brings."""

    card: Card
    arguments: Mapping[str, Any] = {}

    def create(self, *args: Any, **kwargs: Any) -> Any:
        """Build the method; of a function, bind its options. What is given here goes before the choice's own."""
        return self.card.kind.create(self.card, *args, **{**self.arguments, **kwargs})

    def with_arguments(self, written: Mapping[str, Any]) -> Choice:
        """Add arguments, which go before the choice's own."""
        return Choice(self.card, {**self.arguments, **written})


def find(text: str) -> Choice:
    """Return what a name or an alias stands for, with arguments where they are written: ``dyt:alpha=0.8``.

    ``package.module.name`` imports that module first, so that a method of another package is found by it.

    >>> find("dyt:alpha=0.8").create(4)
    DyT(4, alpha=0.8, bias=True, channels_last=True)
    """
    if not isinstance(text, str):
        given = "what is called with a width, as in norm(768)" if callable(text) else repr(text)
        raise TypeError(f"name must be a string such as 'rmsnorm', not {given}")
    name, written = parsed(text)
    choice = _find(name)
    if choice is None:
        raise ValueError(f"no method {name!r}; {_held_by(name) or _nearest(re.sub('[_ ]', '-', name.lower()))}")
    return choice.with_arguments(written)


def _held_by(name: str) -> str:
    """Say how the methods of a user's own module are named; nothing where a name is of no such module."""
    module = name.removesuffix(".py")
    parent, _, last = module.rpartition(".")
    named = getattr(sys.modules.get(parent), last, None)
    if isinstance(named, type) and named.__module__ == parent:
        return f'{last} has no card: put @nk.method("my-norm") with a name of its own above the class'
    paths = [f"{card.module}.{card.entry.__name__}" for card in others() if card.module in (module, parent)]
    if paths:
        return f"the module holds {', '.join(paths)}"
    if Path(f"{module}.py").is_file():
        return f"one of {module}.py is named with its class, such as {module_name(module)}.MyNorm"
    missing = parent.replace(".", "").isidentifier() and _module_or_none(parent) is None
    return f"Python has no module {parent!r} to import it from" if missing else ""


def choose(owner: object, argument: str, text: Any, *kinds: Kind, or_around: bool = False) -> Choice:
    """Return what a text stands for among the methods of some kinds; ``owner`` and ``argument`` begin the error.

    With ``or_around`` methods that a card puts around a model are among them, whatever their kind.

    A name may mean one method of each kind: ``qk-norm`` is an attention core, and as an alias a placement.
    """

    def fits(card: Card) -> bool:
        return not kinds or card.kind in kinds or (or_around and card.around is not None)

    if isinstance(text, str):
        name, written = parsed(text)
        choice = _find(name, fits)
        if choice is not None:
            return choice.with_arguments(written)
    return check.choice(owner, argument, text, sorted(card.name for card in filter(fits, members())))


def members(*kinds: Kind) -> list[Card]:
    """Return the cards of some kinds, by name; of all without any."""
    cards = map(card, methods())
    return [member for member in cards if not kinds or member.kind in kinds]


def of_kind(kind: Kind, room: str | None = None) -> list[Card]:
    """Return the cards of a kind: those of its room, or another, and other packages' wherever; no room else is read."""
    _load_others()
    names = {*methods(room=room or kind.room), *(card.name for card in others())}
    return [member for member in map(card, sorted(names)) if member.kind is kind]


def _nearest(word: str) -> str:
    """Suggest methods by their names alone, which costs no import, and only where none is near by their aliases too."""
    names = methods()
    if not near(word, names):
        names = [name for card in members() for name in (card.name, *card.aliases)]
    return nearest(word, names, "'normkit list' shows them all")


def _any(card: Card) -> bool:
    return True


def _find(name: str, fits: Callable[[Card], bool] = _any) -> Choice | None:
    choice = _by_name(name)
    if choice is None or not fits(choice.card):
        choice = _by_alias(name, fits) or _by_path(name)
    return choice if choice is None or fits(choice.card) else None


def _by_name(name: str) -> Choice | None:
    known = _name_among(name, _files()) or _name_among(name, _cards)
    if known is None:
        _load_others()
        known = _name_among(name, _cards)
    if known is not None and known not in _cards:
        own_file(_files()[known].module)
    return None if known is None else Choice(_cards[known])


def _name_among(name: str, known: Iterable[str]) -> str | None:
    """Return the name among ``known`` that is meant; see :func:`comparison_key`."""
    if name in known:
        return name
    word = comparison_key(name)
    return next((other for other in known if comparison_key(other) == word), None)


def _by_alias(name: str, fits: Callable[[Card], bool] = _any) -> Choice | None:
    """Find a method by another name; of the files, only those that hold the word are imported."""
    word = comparison_key(name)
    holding = [other for other, text in _texts().items() if f'"{word}"' in text]
    for other in map(card, dict.fromkeys([*holding, *_cards])):
        for alias, arguments in other.aliases.items():
            if comparison_key(alias) == word and fits(other):
                return Choice(other, arguments)
    return None


def _by_path(name: str) -> Choice | None:
    """Find ``my_package.my_norm``: a module with one method, or a class or function in a module."""
    parent, _, last = name.rpartition(".")
    for path in filter(None, (name if parent else "", parent)):
        module = _module_or_none(path)
        if module is None:
            continue
        own = [c for c in _cards.values() if c.module == module.__name__]
        named = [c for c in own if last in (c.entry.__name__, c.name, c.name.replace("-", "_"))]
        if path == name:  # the module itself
            named = named or own
        if len(named) == 1:
            return Choice(named[0])
    return None


def _module_or_none(path: str) -> Any:
    """The module of a path; None where there is none, an error where one that it imports is missing."""
    if path.startswith("."):  # that of a file, ./my_norm.py
        return None
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and (path == error.name or path.startswith(error.name + ".")):
            return None
        raise


def create(name: str, *args: Any, **kwargs: Any) -> Any:
    """Build a method by name, as a config does; of a function, the function with its options bound.

    Args:
        name: of the method, or another name of it.
        *args: the arguments of the method, in order.
        **kwargs: the others by name, and ``device`` and ``dtype`` of a module.

    >>> create("dyt", 4, alpha=0.8)
    DyT(4, alpha=0.8, bias=True, channels_last=True)
    """
    return find(name).create(*args, **kwargs)


def method_by_name(name: str) -> Any:
    """Return the class or function of that Python name whose method is called the same, ``RMSNorm``; else None."""
    known = _name_among(name, [*_files(), *_cards])
    return card(known).entry if known is not None and card(known).entry.__name__ == name else None


def entry_by_name(name: str) -> Any:
    """Return the class or function of that Python name, so that ``normkit.RMSNorm`` works; else None.

    An alias that is written as a class is one: of the method itself, or of it with the alias's arguments as defaults.
    """
    own = method_by_name(name)
    if own is not None:
        return own
    return _class_of_alias(name) or next((c.entry for c in _cards.values() if c.entry.__name__ == name), None)


def _class_of_alias(name: str) -> type | None:
    if name not in _classes:
        choice = _by_alias(name) if name[:1].isupper() else None
        if choice is None or name not in choice.card.aliases or not isinstance(choice.card.entry, type):
            return None
        entry, brought = choice.card.entry, choice.arguments
        _classes[name] = _with_defaults(entry, name, brought) if brought else entry
    return _classes[name]


def _with_defaults(entry: type, name: str, brought: Mapping[str, Any]) -> type:
    written = ", ".join(f"{key}={value!r}" for key, value in brought.items())
    whole = inspect.signature(entry)
    signature = whole.replace(
        parameters=[p.replace(default=brought.get(p.name, p.default)) for p in whole.parameters.values()]
    )
    doc = f"{entry.__name__} with {written}.\n\n{inspect.getdoc(entry)}"
    own = {"brought": brought, "__module__": "normkit", "__doc__": doc, "__signature__": signature}
    return type(name, (entry,), own)


def entry_names() -> list[str]:
    """Return the Python names of all methods' classes and functions, and of the aliases that are written as classes."""
    cards = list(map(card, methods()))
    aliases = [alias for c in cards if isinstance(c.entry, type) for alias in c.aliases if alias[:1].isupper()]
    return sorted([*(c.entry.__name__ for c in cards), *aliases])


@functools.lru_cache(maxsize=2**13)
def comparison_key(name: str) -> str:
    """A name as it is compared: capitals, dashes and spaces make no difference, and "normalization" is "norm"."""
    return re.sub("[-_ ]", "", name).lower().replace("isation", "ization").replace("normalization", "norm")
