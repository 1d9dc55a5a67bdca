"""Norms that a model calls in another way than by their place: by a plain value, or by a function and their numbers."""

from __future__ import annotations

import ast
import copy
import dis
import functools
import inspect
import itertools
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.edits import inside
from normkit.surgery.edits.source import Source
from normkit.surgery.flow import arguments
from normkit.surgery.recognition import functional
from normkit.surgery.recognition.specimen import quiet

ASIDE = {*vars(nn.Module()), "_compiled_call_impl"}  # parts and hooks, and what torch.compile makes anew
SUBSCRIPT = 26  # among binary operations, as Python 3.14 has it
DEPTH = 3  # how deep plain objects hold each other


def first_read(model: nn.Module, example: Any, sites: Sequence[str]) -> str | None:
    """Return the first of some norms that is read and not called; one that rests in the example is neither.

    Without an example the code of the block that holds it tells. Torch's own encoders call theirs once these change.
    """
    owners = {name: _block(model, name) for name in sites}
    left = [name for name, (owner, _) in owners.items() if not isinstance(owner, nn.TransformerEncoderLayer)]
    if example is None:
        return next((name for name in left if _reads(*owners[name])), None)
    return next(iter(_read_in(model, example, left)), None) if left else None


def first_named(model: nn.Module, new: Mapping[str, nn.Module]) -> tuple[str, str] | None:
    """Return the first of some norms that its block calls by keywords alone, and a keyword that the new one lacks."""
    for name, norm in new.items():
        path, _, last = name.rpartition(".")
        try:
            source = Source(type(model.get_submodule(path)))
        except ValueError:
            continue
        calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and source.attribute(n.func) == last]
        if calls and not any(call.args for call in calls):
            named, takes = [word.arg for call in calls for word in call.keywords], inspect.signature(norm.forward)
            strange = [word for word in named if word and word not in takes.parameters]
            if strange:
                return name, strange[0]
    return None


def first_aside(model: nn.Module, sites: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of some norms that a plain list, function or object holds too, and what holds it.

    A model that calls it by way of these goes on with the old one, whatever stands in its place.
    """
    norms = {id(model.get_submodule(name)): name for name in sites}
    barren: set[int] = set()  # a configuration is one for all parts
    for name, part in model.named_modules():
        for key, value in vars(part).items() if inside(part)[1] is part else ():
            if key in ASIDE or id(value) in barren:
                continue
            modules = list(_held(value, DEPTH, set()))
            barren |= set() if modules else {id(value)}
            for held in modules:
                if id(held) in norms and held is not part:
                    return norms[id(held)], f"{name}.{key}" if name else key
    return None


def _held(value: Any, depth: int, seen: set[int]) -> Iterator[nn.Module]:
    """The modules that plain values hold, in objects down to a depth."""
    if isinstance(value, nn.Module):
        yield value
    elif not isinstance(value, Tensor | type | types.ModuleType) and id(value) not in seen:
        seen.add(id(value))
        parts, is_object = _parts(value)
        for each in parts if depth or not is_object else ():
            yield from _held(each, depth - is_object, seen)


def _parts(value: Any) -> tuple[Iterable[Any], bool]:
    """What a plain value holds, and whether it is an object of another class than those by which values are held."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return (value.values() if isinstance(value, dict) else value), False
    if isinstance(value, types.MethodType):
        return [value.__self__], False
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords], False
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return [*cells, value.__defaults__, value.__kwdefaults__], False
    return getattr(value, "__dict__", {}).values(), True


def _block(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module above a part that computes something, and as what its code names the part, or the list that has it."""
    path, _, child = name.rpartition(".")
    while path and type(holder := model.get_submodule(path)).forward is nn.Module.forward:
        path, _, last = path.rpartition(".")
        child = last if isinstance(holder, nn.ModuleList | nn.ModuleDict) else child
    return model.get_submodule(path), child


def _reads(owner: nn.Module, child: str) -> bool:
    """Whether a block calls a function of torch that normalizes, and nothing of a child but numbers."""
    functions = list(_methods(owner, "forward", set()))
    if not functional.norms(owner) and not any(map(functional.norms_in, functions)):
        return False
    behind = [step for function in functions for step in _behind(_steps(function), child)]
    return bool(behind) and all(kind == "ATTR" and name != "forward" for kind, name in behind)


def _methods(owner: nn.Module, name: str, seen: set[str]) -> Iterator[types.FunctionType]:
    """A method of a block, and those of its class that this one names."""
    method = inspect.getattr_static(type(owner), name, None)
    if name in seen or not isinstance(method, types.FunctionType) or method is vars(nn.Module).get(name):
        return
    seen.add(name)
    yield (method := inspect.unwrap(method))
    for kind, other in _steps(method):
        if kind == "ATTR":
            yield from _methods(owner, other, seen)


def _steps(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function does in turn: attributes that it reads, its own names that it loads and stores, and the rest."""
    steps: list[tuple[str, Any]] = []
    for step in dis.get_instructions(function):
        if kinds := re.findall("(LOAD|STORE)_FAST", step.opname):  # two at once since Python 3.13
            steps += zip(kinds, step.argval if len(kinds) > 1 else [step.argval], strict=True)
        elif step.opname != "EXTENDED_ARG":
            steps.append(("ATTR" if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else step.opname, step.argval))
    return steps


def _behind(steps: Sequence[tuple[str, Any]], child: str) -> Iterator[tuple[str, Any]]:
    """What comes behind each reading of a child, or of one of a list, under a name of the function's own too."""
    pairs = [*itertools.pairwise(steps)]
    for at, step in enumerate(steps[:-1]):
        if step == ("ATTR", child):
            item = steps[at + 2 : at + 3] in ([("BINARY_SUBSCR", None)], [("BINARY_OP", SUBSCRIPT)])
            kind, name = steps[at + 3 if item else at + 1]
            yield from [use for load, use in pairs if load == ("LOAD", name)] if kind == "STORE" else [(kind, name)]


def _read_in(model: nn.Module, example: Any, sites: Iterable[str]) -> list[str]:
    """Return those of which a copy of the model in evaluation reads numbers and not the forward."""
    twin = copy.deepcopy(model).eval()
    reads: dict[str, set[str]] = {name: set() for name in sites}
    for name, names in reads.items():
        part = twin.get_submodule(name)
        kind, held = type(part), {*vars(part), *part._parameters, *part._buffers, "forward"} - {"training"}

        def get(self: Any, key: str, kind: Any = kind, held: set[str] = held, names: set[str] = names) -> Any:
            if key in held and not key.startswith("_"):
                names.add(key)
            return kind.__getattribute__(self, key)

        part.__class__ = type(kind.__name__, (kind,), {"__getattribute__": get})
    args, named = arguments(example)
    with quiet(), torch.no_grad():
        twin(*args, **named)
    return [name for name, names in reads.items() if names and "forward" not in names]
