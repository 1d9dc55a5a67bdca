"""Short prints of code and values, the same in every process as long as nothing changes.

Of code, the user's functions and classes are read, with what of the user's they use; of an installed package, names
alone. Of values: plain ones, arrays, what holds such, and objects that are the user's or configuration. A print begins
with the version of these rules, and that of code with Python's, whose bytecode is read: prints of different versions
tell nothing.

>>> print_of({"width": 16, "depth": 2}) == print_of({"depth": 2, "width": 16}) != print_of({"depth": 2, "width": 32})
True
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import os
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

RULES = "2"
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range)
BEHIND = ("__func__", "__self__", "__wrapped__", "func", "args", "keywords", "fget", "fset", "fdel")  # of these:
AROUND = (
    *(staticmethod, classmethod, property, types.MethodType, functools.partial, functools.partialmethod),
    *(functools.cached_property, type(functools.cache(len))),
)
CONFIGURATION = (argparse.Namespace, types.SimpleNamespace)
OF_THE_TEXT = ("__doc__", "__firstlineno__")  # what a class in a function notes of how it is written
READS = ("LOAD_ATTR", "LOAD_METHOD")
LOADS = (*READS, "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
CHANGES |= {"reverse", "setdefault", "sort", "update"}
MOST = 2**20  # numbers of an array that are read, evenly spaced


def print_of(thing: Any) -> str:
    """Return a short print of code, or of a value, and of the code that it uses; empty where it cannot be read.

    What the code itself writes to, such as a cache or a count, is no part of it.
    """
    try:
        reader = _Reader(getattr(thing, "__module__", None))
        words = {reader.word(thing)}
        for code in reader.code:  # which grows meanwhile
            words.add(_short(reader.inside(code)))
    except Exception:  # a user's objects may refuse to be looked at in any way
        return ""
    words |= {word for place, word in reader.uses if place not in reader.writes}
    return f"{RULES}.{sys.version_info.minor}.{_short(sorted(words))[:8]}"


def print_of_value(value: Any, most: int = 0) -> str:
    """Return a print of all that a value holds, whatever it is; empty where it cannot be read.

    Of an array of more than ``most`` numbers, some are read; 0: all.
    """
    try:
        return f"{RULES}.{_short([_Reader(None, whole=True, most=most).word(value)])[:16]}"
    except Exception:  # of the objects of a user
        return ""


def _short(words: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(words).encode(errors="backslashreplace"), digest_size=16).hexdigest()


class _Reader:
    """Turns values into words; functions and classes into their names, and keeps them, to be read apart.

    home: a module that is read, whoever it is of; whole: whether all objects are looked into, as those that are data;
    most: how many numbers of an array are read, 0 for all.
    uses: the places of what code uses, each with a word: a global of a module, a cell, an attribute of classes by its
    name; writes: the places that it writes to.
    """

    def __init__(self, home: str | None, whole: bool = False, most: int = MOST):
        self.home, self.whole, self.most = home, whole, most
        self.code: list[Any] = []
        self.uses: set[tuple[Any, str]] = set()
        self.writes: set[Any] = set()
        self.known: dict[int, tuple[str, Any]] = {}  # with the object, so that no other takes its place in memory

    def word(self, thing: Any) -> str:
        """Return a word for a value."""
        if type(thing) in PLAIN:
            return repr(thing)
        if id(thing) not in self.known:
            self.known[id(thing)] = "again", thing  # within itself
            self.known[id(thing)] = self._word(thing), thing
        return self.known[id(thing)][0]

    def _word(self, thing: Any) -> str:
        if isinstance(thing, types.FunctionType | type):
            self.code.append(thing)
            return _name_of(thing)
        return _short([_name_of(type(thing)), *self._parts(thing)])

    def _parts(self, thing: Any) -> Iterable[str]:
        if isinstance(thing, AROUND):
            return [self.word(getattr(thing, name, None)) for name in BEHIND]
        if hasattr(type(thing), "__array__") or hasattr(thing, "__array_interface__"):
            return [self.word(part) for part in _numbers(thing, self.most)]
        if isinstance(thing, list | tuple | collections.deque):
            return [self.word(part) for part in thing]
        if isinstance(thing, set | frozenset):
            return sorted(self.word(part) for part in thing)
        if isinstance(thing, dict | collections.UserDict | types.MappingProxyType):
            return self._pairs(thing.items())
        if isinstance(thing, Path) and thing.is_absolute():  # it may be where the user's folder lies
            return [thing.name]
        if hasattr(type(thing), "__next__"):  # where it is changes as it is used
            return []
        if isinstance(thing, enum.Enum) or not hasattr(thing, "__dict__"):
            text = "" if dataclasses.is_dataclass(thing) else repr(thing)
            return [*self._pairs(_fields(thing)), text if " at 0x" not in text else ""]
        return [self.word(type(thing)), *self._pairs(vars(thing).items())] if self._is_read(type(thing)) else []

    def _pairs(self, pairs: Iterable[tuple[Any, Any]]) -> list[str]:
        return sorted(f"{self.word(key)}: {self.word(value)}" for key, value in pairs)

    def _is_read(self, kind: type) -> bool:
        configuration = dataclasses.is_dataclass(kind) or issubclass(kind, CONFIGURATION) or "Config" in kind.__name__
        return self.whole or configuration or self.owns(kind.__module__)

    def owns(self, module: Any) -> bool:
        """Whether the code of a module is read: the user's, or the one that was handed in."""
        return module is not None and (module == self.home or _is_users(module, _file_of(module)))

    def inside(self, code: Any) -> Iterator[str]:
        """Return the words of a function or a class, its name first."""
        yield _name_of(code)
        yield from self._of_class(code) if isinstance(code, type) else self._of_function(code)

    def _of_class(self, kind: type) -> Iterator[str]:
        if not self.owns(kind.__module__):
            return
        yield self.word(kind.__bases__)
        for name, part in sorted(vars(kind).items()):
            pythons = name.startswith("__") and name.endswith("__")  # of which values tell how the text is written
            if isinstance(part, (types.FunctionType, *AROUND)):
                yield f"{name}: {self.word(part)}"
            elif not pythons:
                self.uses.add((f".{name}", f"{_name_of(kind)}.{name}: {self.word(part)}"))

    def _of_function(self, function: types.FunctionType) -> Iterator[str]:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        held = {name: content for name, cell in cells.items() for content in _content(cell)}
        decorated = getattr(function, "__wrapped__", None)
        if not self.owns(function.__globals__.get("__name__")):  # a decorator of a package: what it decorates counts
            inner = (part for part in (decorated, *held.values()) if isinstance(part, types.FunctionType | type))
            yield self.word([*inner])
            return
        yield self.word((function.__defaults__, function.__kwdefaults__, decorated))
        for name, content in held.items():
            self.uses.add((id(cells[name]), f"{_name_of(function)}.{name}: {self.word(content)}"))
        yield from self._of_code(function.__code__, function.__globals__, cells)

    def _of_code(self, code: types.CodeType, names: dict[str, Any], cells: dict[str, Any]) -> Iterator[str]:
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        used: Any = None
        for at, (step, following) in enumerate(zip(steps, [*steps[1:], steps[-1]], strict=True)):
            if any(one.opname == "STORE_NAME" and one.argval in OF_THE_TEXT for one in (step, following)):
                continue
            yield step.opname
            if isinstance(step.argval, types.CodeType):
                yield from self._of_code(step.argval, names, cells)
            else:
                yield self.word(step.argval)
            place: Any = (names.get("__name__"), step.argval)
            if step.opname in READS and self._is_own_module(used):
                place, used = (used.__name__, step.argval), vars(used).get(step.argval)
            elif step.opname in READS:
                place, used = f".{step.argval}", None
            elif "DEREF" in step.opname:
                place, used = id(cells.get(step.argval)), None
            else:
                is_global = step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval != "__file__"
                used = names.get(step.argval) if is_global else None
            if used is not None and not isinstance(used, types.ModuleType):
                self.uses.add((place, f"{place}: {self.word(used)}"))
            stored = step.opname in ("STORE_GLOBAL", "STORE_DEREF")
            if stored or (step.opname in LOADS and _is_written(steps[at + 1 :])):
                self.writes.add(place)

    def _is_own_module(self, thing: Any) -> bool:
        return isinstance(thing, types.ModuleType) and self.owns(thing.__name__)


def _name_of(code: Any) -> str:
    return f"{code.__module__}.{code.__qualname__}"


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _is_written(steps: list[dis.Instruction]) -> bool:
    """Whether what was loaded before these steps is written to: ``x[...] =``, ``x.y =``, ``x.append``, ``x.mul_``."""
    above, before = 0, ""  # values that lie on it
    for step in steps:
        turned = before.startswith(("SWAP", "ROT"))  # as += does
        if step.opname in READS and above == 0 and (step.argval in CHANGES or step.argval.endswith("_")):
            return True
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") and above == 1 + turned:
            return True
        if step.opname in ("STORE_ATTR", "DELETE_ATTR") and above == turned:
            return True
        if "JUMP" in step.opname or "ITER" in step.opname:
            return False
        above, before = above + dis.stack_effect(step.opcode, step.arg, jump=False), step.opname
        if above < ("CALL" in before):  # what follows is of something else
            return False
    return False


def _fields(thing: Any) -> list[tuple[str, Any]]:
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    return [(field.name, getattr(thing, field.name, None)) for field in fields]


def _numbers(thing: Any, most: int) -> list[Any]:
    """Return the kind of an array and its numbers, of more than ``most`` some; where there are none, the kind alone."""
    kind = [str(getattr(thing, "dtype", "")), str(tuple(getattr(thing, "shape", ())))]
    with contextlib.suppress(Exception):  # such as tensors without storage
        is_tensor = isinstance(thing, torch.Tensor)
        flat: Any = thing.detach().resolve_conj().cpu().flatten() if is_tensor else numpy.asarray(thing).ravel()
        some = flat[:: max(1, len(flat) // most if most else 1)]
        some = some.contiguous().view(torch.uint8).numpy() if is_tensor else some
        return [*kind, some.tolist() if some.dtype.hasobject else hashlib.blake2b(some.tobytes()).hexdigest()]
    return kind


def _file_of(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""


@functools.cache
def _is_users(module: str, file: str) -> bool:
    """Whether a module is of no installed package, and none of Python's own."""
    if module == "__main__" or not file:
        return module == "__main__"
    place, python = Path(file).resolve(), Path(os.__file__).resolve().parent
    installed = {"site-packages", "dist-packages"} & {*place.parts} or python in place.parents
    return not installed and module.partition(".")[0] != "normkit"
