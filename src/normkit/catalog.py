"""The catalogue: one card a method, and the way from a name to a module.

A method's file carries one decorator, :func:`method`. Everything that lists, builds, documents, tests or times
methods reads the cards collected here; nothing else keeps a list.

    >>> import normkit as nk
    >>> nk.create("rmsnorm", 8)
    RMSNorm(8, eps=1e-06, p=1.0, bias=False, offset=0.0, eps_inside=True, cast='auto')
    >>> nk.card("rmsnorm").over
    'C'
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

ROOMS = {
    "activation": "activations, by what a statistic is taken over",
    "attention": "attention scores",
    "residual": "the residual stream",
    "weight": "weights",
}

CONTRACT = {
    "gradcheck": "gradients are the derivative of the forward pass",
    "higher-derivatives": "second and third derivatives are right, torch's attention on its own formula",
    "half": "bfloat16 and float16 stay close to float64, with parameters in half precision or float32",
    "extremes": "zeros, constants, 1e-20, 6e4 and an offset of 1e4 give no NaN",
    "empty": "an empty batch passes through",
    "one": "one sample with one position passes in evaluation",
    "compile": "one torch.compile graph, no recompile on a new batch size",
    "export": "torch.export gives the same numbers",
    "vmap": "torch.func.vmap and torch.func.grad work",
    "checkpoint": "activation checkpointing changes nothing",
    "gradients": "every parameter receives a gradient",
    "rest": "running averages stand still in evaluation",
    "processes": "two processes with unequal batches equal one with the joined batch",
    "onnx": "the evaluated module exports to ONNX with the same numbers",
    "pickle": "the module survives pickle and deepcopy",
    "meta": "the module can be built on the meta device",
}

_cards: dict[str, Card] = {}


@dataclass(frozen=True)
class Card:
    """What the library knows of a method besides its mathematics.

    ``shape`` is the layout of the first input, written as axis names: ``C`` is the feature count, ``...`` any leading
    axes, ``*`` any number of trailing axes, ``+`` at least one. ``over`` names the axes that a statistic is taken
    over; it is empty where there is no statistic. ``inputs`` lays out the further inputs in the same way, with a kind
    after a colon (``"N : index 3"``, ``"B T : bool"``); a name that ends in ``?`` may be left out. ``peer`` builds,
    from a feature count, another library's module for the same numbers: what the benchmark races and a test compares
    with.
    """

    name: str
    cls: type[nn.Module]
    paper: str
    shape: str
    over: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    invariant: tuple[str, ...] = ()
    provenance: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict)
    peer: Callable[[int], nn.Module] | None = None

    @property
    def room(self) -> str:
        """The folder under ``normkit`` that the method lives in: what is being normalized."""
        return self.cls.__module__.split(".")[1]

    @property
    def group(self) -> str:
        """The folder inside the room, or an empty string."""
        parts = self.cls.__module__.split(".")[2:-1]
        return "/".join(parts)

    def exemption(self, line: str, *case: str) -> str | None:
        """Return why a case of a line of the contract is not kept, or None.

        A key of ``exempt`` is a line and any words of its cases, ``"extremes huge float16"``: it covers the cases that
        have all of its words, and a line alone covers all of them.
        """
        for key, reason in self.exempt.items():
            named, *words = key.split()
            if named == line and set(words) <= set(case):
                return reason
        return None

    @property
    def summary(self) -> str:
        """The first line of the docstring: what the method does to the numbers."""
        return (inspect.getdoc(self.cls) or "").split("\n", 1)[0]

    @property
    def signature(self) -> inspect.Signature:
        """What :func:`create` takes after the name."""
        return inspect.signature(self.cls)


Method = TypeVar("Method", bound=type[nn.Module])


def method(
    name: str,
    *,
    paper: str,
    shape: str,
    over: str,
    inputs: Mapping[str, str] | None = None,
    example: Mapping[str, Any] | None = None,
    replaces: tuple[str, ...] = (),
    invariant: tuple[str, ...] = (),
    provenance: str = "",
    exempt: Mapping[str, str] | None = None,
    peer: Callable[[int], nn.Module] | None = None,
) -> Callable[[Method], Method]:
    """Enter a class into the catalogue under ``name``; see :class:`Card` for the fields.

    ``example`` holds the keyword arguments that a smallest instance needs, ``exempt`` the cases of the contract that
    the method cannot keep, each with its reason; see :meth:`Card.exemption`. The class also learns to take ``device``
    and ``dtype``, as torch's modules do.
    """
    unknown = {key.split()[0] for key in exempt or {}} - set(CONTRACT)
    if unknown:
        lines = f"the lines are {sorted(CONTRACT)}"
        raise ValueError(f"{name}: exempt names no line of the contract: {sorted(unknown)}; {lines}")

    def enter(cls: Method) -> Method:
        if name in _cards and _cards[name].cls.__qualname__ != cls.__qualname__:
            raise ValueError(f"the name {name!r} is taken by {_cards[name].cls.__module__}")
        _take_device_and_dtype(cls)
        taken = (paper, shape, over, inputs or {}, example or {}, replaces, invariant, provenance, exempt or {}, peer)
        card = Card(name, cls, *taken)
        _cards[name] = cls.card = card  # type: ignore[attr-defined]
        return cls

    return enter


def _take_device_and_dtype(cls: type[nn.Module]) -> None:
    """Wrap ``__init__``: remember the arguments for ``repr``, build on ``device``, convert to ``dtype``."""
    plain = cls.__init__
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def init(self, *args, device=None, dtype=None, **kwargs):
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"{cls.__name__}: dtype must be a floating-point torch.dtype, not {dtype!r}")
        if "arguments" not in self.__dict__:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            self.__dict__["arguments"] = _plain_values(signature, bound)
        if device is None:
            plain(self, *args, **kwargs)
        else:
            with torch.device(device):
                plain(self, *args, **kwargs)
        if dtype is not None:
            self.to(dtype)

    extra = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in ("device", "dtype")]
    own = list(signature.parameters.values())
    keywords = [p for p in own if p.kind is inspect.Parameter.VAR_KEYWORD]
    own = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
    init.__signature__ = signature.replace(parameters=[*own, *extra, *keywords])  # type: ignore[attr-defined]
    cls.__init__ = init  # type: ignore[method-assign]


def _plain_values(signature: inspect.Signature, bound: inspect.BoundArguments) -> dict[str, Any]:
    values = dict(list(bound.arguments.items())[1:])
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            values.update(values.pop(parameter.name))
    return {key: value for key, value in values.items() if not isinstance(value, nn.Module | torch.Tensor)}


@functools.cache
def _load() -> None:
    """Import every method file of every room, so that each enters its card."""
    for room in ROOMS:
        package = importlib.import_module(f"normkit.{room}")
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)


def methods(pattern: str = "*", *, room: str | None = None, group: str | None = None) -> list[str]:
    """Return the names of the catalogue, sorted, narrowed by a wildcard pattern, a room or a group of a room.

    >>> methods("*rms*")
    ['crmsnorm', 'rmsnorm', 'srmsnorm']
    """
    _load()
    if room is not None and room not in ROOMS:
        raise ValueError(f"no room {room!r}; the rooms are {', '.join(ROOMS)}")
    groups = sorted({card.group for card in _cards.values() if room in (None, card.room)} - {""})
    if group is not None and group not in groups:
        raise ValueError(f"no group {group!r}; the groups are {', '.join(groups)}")
    return sorted(
        name
        for name, card in _cards.items()
        if fnmatch.fnmatchcase(name, pattern) and room in (None, card.room) and group in (None, card.group)
    )


def card(name: str) -> Card:
    """Return the card of a method; a name that does not exist gets the nearest ones in the error."""
    _load()
    if not isinstance(name, str):
        raise TypeError(f"name must be a string such as 'rmsnorm', not {name!r}")
    found = _cards.get(name) or _cards.get(name.lower().replace("_", "-"))
    if found is None:
        raise ValueError(f"no method {name!r}; {_nearest(name.lower().replace('_', '-'), list(_cards))}")
    return found


def create(name: str, *args: Any, **kwargs: Any) -> nn.Module:
    """Build a method by name, as a config does.

    >>> create("dyt", 4, alpha=0.8)
    DyT(4, alpha=0.8, bias=True, channels_last=True)
    """
    found = card(name)
    takes = found.signature.parameters
    for keyword in kwargs:
        if keyword not in takes and not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
            raise TypeError(f"{found.name} takes no argument {keyword!r}; {_nearest(keyword, list(takes))}")
    try:
        found.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{found.name}: {error}; its arguments are {found.signature}") from None
    return found.cls(*args, **kwargs)


def class_named(name: str) -> type[nn.Module] | None:
    """Return the method class of that Python name, so that ``normkit.RMSNorm`` works."""
    _load()
    return next((card.cls for card in _cards.values() if card.cls.__name__ == name), None)


def class_names() -> list[str]:
    """Return the Python names of all method classes."""
    _load()
    return sorted(card.cls.__name__ for card in _cards.values())


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5) or [k for k in known if word in k][:3]
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "it takes " + ", ".join(known) if len(known) < 20 else "normkit.methods() lists them all"
