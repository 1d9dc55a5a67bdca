"""What a script or a notebook hands in, rather than names: models, data, measures, each under a name that a plan holds.

A plan holds words alone, so that it can be read again. What a module holds is ``module:name``, as the command takes it;
anything else is kept here, under its own name and a short print of what it is made of, by which a later call knows
whether it is still the same. Other processes have it from :func:`packed`.

>>> hand_in(dict)
'builtins:dict'
>>> source = hand_in(lambda: 1, "1f3a")
>>> source, in_words(source), find(source)()
('given:lambda#1f3a', 'lambda', 1)
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

from normkit.optional import let_torchvision_load, library

PREFIX = "given:"

_things: dict[str, Any] = {}


def hand_in(thing: Any, print_: str = "") -> str:
    """Keep a thing, and return the name by which it is found: of a function or class in a module, ``module:name``."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if _is_importable(thing, module, name):
        return f"{module}:{name}"
    called = str(name or type(thing).__name__).rpartition(".")[2].strip("<>")
    source = f"{PREFIX}{called}" + (f"#{print_}" if print_ else "")
    _things[source] = thing
    return source


def _is_importable(thing: Any, module: str | None, name: str | None) -> bool:
    """Whether another process would find it in its module; what a script or a notebook defines, none would."""
    namespace = sys.modules.get(module or "")
    spec = getattr(namespace, "__spec__", None)
    return module != "__main__" and bool(spec and spec.origin) and getattr(namespace, name or "", None) is thing


def find(source: str) -> Any:
    """Return what was handed in under a name."""
    if source not in _things:
        raise ValueError(
            f"{in_words(source)!r} was handed in by a script or a notebook, and is not there in this process"
        )
    return _things[source]


def in_words(source: str) -> str:
    """Return a source in a user's words."""
    return source.removeprefix(PREFIX).partition("#")[0] if source.startswith(PREFIX) else source


def differ(was: str, now: str) -> bool:
    """Whether two prints tell that a thing has changed; an empty one, and those of other rules, tell nothing.

    >>> differ("", "2.11.5e"), differ("1f", "2.11.5e"), differ("2.11.1f", "2.11.5e")
    (False, False, True)
    """
    return bool(was and now) and was != now and was.rpartition(".")[0] == now.rpartition(".")[0]


def alike(was: Any, now: Any) -> bool:
    """Whether a source may be what it was: equal, or handed in under one name, of which the prints tell nothing."""
    if was == now:
        return True
    (name, _, before), (other, _, here) = (str(source).partition("#") for source in (was, now))
    return name.startswith(PREFIX) and name == other and not differ(before, here)


def pack(sources: list[str]) -> bytes:
    """Return what was handed in under some names, in a form that other processes can read, functions included.

    With it go the methods that are not the package's own, one that a module holds as the name of that module, and what
    is known of models.
    """
    from normkit import catalog  # here, as in what follows: what help reads needs no torch
    from normkit.lab.plan import exchanges

    things = {source: _things[source] for source in sources if source in _things}
    imports = {card.name: _is_importable(card.entry, card.module, card.entry.__qualname__) for card in catalog.others()}
    modules = sorted({card.module for card in catalog.others() if imports[card.name]})
    cards = [card for card in catalog.others() if not imports[card.name]]
    return library("cloudpickle").dumps((modules, cards, things, exchanges.snapshot()))


def unpack(things: bytes) -> None:
    """Take in what another process has :func:`packed`."""
    from normkit import catalog
    from normkit.lab.plan import exchanges

    loads = library("cloudpickle").loads
    try:
        modules, cards, objects, known = loads(things)
    except RuntimeError:  # maybe of a torchvision that was built for another torch, which timm and others import
        if let_torchvision_load() is None:
            raise
        modules, cards, objects, known = loads(things)
    for module in modules:
        with contextlib.suppress(ImportError):  # a method of it that is asked for is then named
            importlib.import_module(module)
    for card in cards:
        catalog.take_in(card)
    _things.update(objects)
    exchanges.take_in(known)


def code_of(words: Iterable[str]) -> dict[str, str]:
    """Return prints of the methods named that are not the package's own, as their code may change under their names."""
    from normkit import catalog
    from normkit.prints import print_of

    named = {word.partition(":")[0] for word in words}
    return {card.name: print_of(card.entry) for card in catalog.others() if named & {card.name, *card.aliases}}
