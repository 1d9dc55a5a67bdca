"""Norms that a model calls in another way than by their place: by a plain list, or by a function and their numbers."""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import itertools
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from normkit.surgery.edits.source import Source
from normkit.surgery.flow import arguments
from normkit.surgery.recognition import functional
from normkit.surgery.recognition.specimen import quiet

EXCHANGED = ("_modules", "_torchdynamo_orig_callable")  # the latter is what torch.compile was handed


def first_read(model: nn.Module, example: Any, sites: Sequence[str]) -> str | None:
    """Return the first of some norms that is read and not called; one that rests in the example is neither.

    Without an example the code of the block that holds it tells. Torch's own encoders call theirs once these change.
    """
    owners = {name: model.get_submodule(name.rpartition(".")[0]) for name in sites}
    left = [name for name, owner in owners.items() if not isinstance(owner, nn.TransformerEncoderLayer)]
    if example is None:
        return next((name for name in left if _reads(owners[name], name.rpartition(".")[2])), None)
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
    """Return the first of some norms that a plain list, dictionary or bound method holds too, and what holds it.

    A model that calls it by way of these goes on with the old one, whatever stands in its place.
    """
    norms = {id(model.get_submodule(name)): name for name in sites}
    for name, part in model.named_modules():
        for key, value in vars(part).items():
            for held in _held(value) if key not in EXCHANGED else ():
                if id(held) in norms and held is not part:
                    return norms[id(held)], f"{name}.{key}" if name else key
    return None


def _held(value: Any, seen: frozenset[int] = frozenset()) -> Iterator[nn.Module]:
    """The modules that plain values hold."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, types.MethodType):
        yield from _held(value.__self__)
    elif isinstance(value, dict | list | tuple | set | frozenset) and id(value) not in seen:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _held(each, seen | {id(value)})


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
    """What comes behind each reading of a child, under a name of the function's own too."""
    pairs = [*itertools.pairwise(steps)]
    for step, (kind, name) in pairs:
        if step == ("ATTR", child):
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
