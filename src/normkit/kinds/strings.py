"""Methods of text: strings, names and tables in; strings, numbers and records out."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from normkit.kinds.kind import TEXT_LINES, Kind

if TYPE_CHECKING:
    from normkit.catalog import Card

ASKED = ("__init__", "__call__")


@dataclass(frozen=True)
class TextKind(Kind):
    """A method of text: built with its options, then called or asked; there are no tensors."""

    def entered(self, entry: Any) -> Any:
        """The class, whose methods refuse by name what is of another type than they say."""
        for name, value in list(vars(entry).items()):
            if inspect.isfunction(value) and (name in ASKED or not name.startswith("_")):
                setattr(entry, name, _check_types(value))
        return entry

    def takes(self, card: Card) -> list[str]:
        """A call takes no tensors."""
        return []

    def width(self, card: Card) -> None:
        """There is none."""

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """Build, and ask as the class shows."""
        name, asked = next(iter(card.entry.calls.items()))
        call = self.noun if name == "__call__" else f"{self.noun}.{name}"
        return f"{self.build_line(card, arguments)}\ny = {call}({', '.join(map(repr, asked))})"


TEXT = TextKind("text", "method", "text", TEXT_LINES)


class Text:
    """A method of text: strings, names or tables in; strings, numbers or records out. It keeps nothing of a call.

    ``calls`` shows how it is asked, arguments by the name of the method: what its page prints and its contract asks.
    ``form`` is the Unicode form in which it compares; None: code points are taken as they come.
    """

    kind: ClassVar[Kind] = TEXT
    card: ClassVar[Card]
    calls: ClassVar[Mapping[str, tuple[Any, ...]]]
    form: ClassVar[str | None] = None

    def __init__(self) -> None:
        """Take nothing."""

    def __repr__(self) -> str:
        shown = [f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_")]
        return f"{type(self).__name__}({', '.join(shown)})"


def _check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check what a method is given against its annotations."""
    signature = inspect.signature(function)
    names = list(signature.parameters)[1:]
    type_hints: dict[str, Any] = {}

    @functools.wraps(function)
    def call(self, *args, **kwargs):
        if not type_hints:
            type_hints.update(typing.get_type_hints(function))
        in_order = not kwargs and len(args) <= len(names)  # which binding would only find out, and slowly
        values = zip(names, args, strict=False) if in_order else _bound(signature, self, args, kwargs)
        for name, value in values:
            if type(value) is not type_hints[name] and not is_a(value, type_hints[name]):
                written = signature.parameters[name].annotation
                raise TypeError(f"{type(self).__name__}: {name} must be of type {written}, not {_short(value)}")
        return function(self, *args, **kwargs)

    return call


def _bound(signature: inspect.Signature, self: Any, args: Any, kwargs: Any) -> Iterable[tuple[str, Any]]:
    return islice(signature.bind(self, *args, **kwargs).arguments.items(), 1, None)


def _short(value: Any) -> str:
    written = repr(value)
    return written if len(written) < 80 else f"{written[:77]}..."


def is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type, to its last item; a list may stand for a tuple, a string for no list.

    >>> is_a(["a", "b"], Sequence[str]), is_a("ab", Sequence[str]), is_a([0, "a"], tuple[int, str]), is_a(True, float)
    (True, False, True, False)
    """
    origin = typing.get_origin(kind) or kind
    own = OF_KINDS.get(origin)
    return isinstance(value, origin) if own is None else own(value, *typing.get_args(kind))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_one_of(value: Any, *kinds: Any) -> bool:
    return any(is_a(value, kind) for kind in kinds)


def _is_number(*kinds: type) -> Callable[..., bool]:
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


OF_KINDS: dict[Any, Callable[..., bool]] = {
    Any: lambda value: True,
    types.UnionType: _is_one_of,
    typing.Union: _is_one_of,
    tuple: lambda value, *kinds: _is_list(value) and len(value) == len(kinds) and all(map(is_a, value, kinds)),
    Sequence: lambda value, kind: _is_list(value) and (kind is Any or all(is_a(item, kind) for item in value)),
    Mapping: lambda value, *kinds: (
        isinstance(value, Mapping) and all(all(map(is_a, kv, kinds)) for kv in value.items())
    ),
    int: _is_number(int),
    float: _is_number(int, float),
}
