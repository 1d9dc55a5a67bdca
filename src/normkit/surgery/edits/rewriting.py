"""A class derived from a block's own, whose forward was written anew: names and state stay.

What is changed is described by words, ``("add", "norm")``. Another process can derive the class again from a pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from normkit.surgery.edits import adding, turning
from normkit.surgery.edits.source import Source

EDITS: dict[str, Callable[..., dict[str, Any]]] = {"add": adding.edit, "turn": turning.edit}
Word = tuple[str, ...]
_DERIVED: dict[tuple[Any, tuple[Word, ...]], type[nn.Module]] = {}  # all blocks of one kind are of one class


def derived(own: Any, words: tuple[Word, ...]) -> type[nn.Module]:
    """The class whose forward has the changes that are asked for, each the name of an edit and of what it changes."""
    if (own, words) not in _DERIVED:
        _DERIVED[own, words] = _derive(own, words)
    return _DERIVED[own, words]


def words_of(kind: type[nn.Module]) -> tuple[Word, ...]:
    """The changes that a class has; none where it is the user's own."""
    return next((words for (_, words), known in _DERIVED.items() if known is kind), ())


def own_class(model: nn.Module) -> type[nn.Module]:
    """The class that a model had before its forward was changed."""
    kind = type(model)
    while words_of(kind):
        kind = kind.__bases__[0]
    return kind


def _derive(own: Any, words: tuple[Word, ...]) -> type[nn.Module]:
    source = Source(own)
    calls: dict[str, Any] = {}
    for kind, *names in words:
        calls |= EDITS[kind](source, *names)
    about = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}

    def again(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
        return _blank, (own, words), self.__getstate__()

    body = {name: staticmethod(call) for name, call in calls.items()}
    return type(own.__name__, (own,), {**body, **about, "forward": source.function(), "__reduce_ex__": again})


def _blank(own: Any, words: tuple[Word, ...]) -> nn.Module:
    """A module of a derived class, to be filled by who unpickles it."""
    kind = derived(own, words)
    return kind.__new__(kind)
