"""What a module keeps besides its tensors: on itself, on its class, and in the names that its forward reads."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy
import torch
from torch import nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
CONTAINERS = (list, dict, set)
EVERY = frozenset(vars(nn.Module()))
FEW = 10_000  # numbers of a tensor that are read one by one
DEEP = 4
MOST = 64  # functions that are looked into

GENERATORS: dict[type, Callable[[Any], Any]] = {  # of random numbers, and the state that each is in
    torch.Generator: lambda generator: generator.get_state().numpy().tobytes(),
    random.Random: random.Random.getstate,
    numpy.random.Generator: lambda generator: str(generator.bit_generator.state),
}


def attributes(module: nn.Module) -> dict[str, Any]:
    """Return what a module holds besides its tensors and modules, in values that can be compared."""
    return {
        f"{name}.{key}": describe(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key not in EVERY
    }


def with_classes(module: nn.Module) -> dict[str, Any]:
    """The same, and what its classes and the names that they read hold: where a module may count its calls."""
    outside = {name: describe(read()) for name, read, _ in _outside(module)}
    return {**attributes(module), **outside}


def differs_as_copy(module: nn.Module, twin: nn.Module) -> str | None:
    """Return what a copy of a module has otherwise: another class, or another word or number; None if nothing."""
    for (name, part), other in zip(module.named_modules(), twin.modules(), strict=False):
        if type(other) is not type(part):
            return f"{name or 'it'} becomes a {type(other).__name__}"
        for key, value in vars(part).items():
            if key not in EVERY and isinstance(value, PLAIN) and describe(value) != describe(vars(other).get(key)):
                return f"{name}.{key}".lstrip(".") + " becomes another"
    return None


def describe(value: Any, deep: int = DEEP) -> Any:
    """Return what a value is, in words, numbers and tuples of such; what cannot be looked into, by its identity."""
    if isinstance(value, PLAIN):
        return repr(value)
    if torch.is_tensor(value):
        few = value.numel() <= FEW and not value.is_meta
        return str(value.dtype), tuple(value.shape), repr(value.tolist()) if few else (id(value), value._version)
    if isinstance(value, functools.partial):
        return describe((value.func, value.args, value.keywords), deep)
    if callable(value) and not isinstance(value, nn.Module):
        return getattr(value, "__qualname__", ""), id(value)
    return id(value) if deep == 0 else _inside(value, deep - 1)


def _inside(value: Any, deep: int) -> Any:
    """What a value holds."""
    if isinstance(value, dict):
        return tuple((describe(k, deep), describe(v, deep)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(describe(v, deep) for v in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted(str(describe(v, deep)) for v in value))
    for kind, state in GENERATORS.items():
        if isinstance(value, kind):
            return state(value)
    return (type(value).__qualname__, describe(vars(value), deep)) if hasattr(value, "__dict__") else repr(value)


@contextlib.contextmanager
def undone(module: nn.Module) -> Iterator[None]:
    """Put back at the end what a module's calls have changed on its class and in the names that its forward reads."""
    before = [(read, write, read(), describe(read()), _copied(read())) for _, read, write in _outside(module)]
    try:
        yield
    finally:
        for read, write, value, description, items in before:
            if isinstance(value, CONTAINERS) and describe(value) != description:
                value.clear()
                value.extend(items) if isinstance(value, list) else value.update(items)
            if read() is not value:
                write(value)


def _copied(value: Any) -> Any:
    """A copy, of a container that holds what cannot be copied, such as a lock, one that holds the same."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return copy.copy(value)


def _outside(module: nn.Module) -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    """The plain values outside a module that its own code can change: their names, how they are read and written."""
    for cls in {one for part in module.modules() for one in type(part).__mro__}:
        if not _somebodys(cls):
            continue
        for key, value in vars(cls).items():
            if not key.startswith("__") and isinstance(value, PLAIN + CONTAINERS):
                yield (
                    f"{cls.__name__}.{key}",
                    functools.partial(getattr, cls, key),
                    functools.partial(setattr, cls, key),
                )
        for function in _functions_of(cls):
            yield from _beside(function)


def _beside(function: FunctionType) -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    """The plain values that a function reads: globals, those of the function around it, and its defaults."""
    names = function.__globals__
    for key in function.__code__.co_names:
        if isinstance(names.get(key), PLAIN + CONTAINERS):
            yield key, functools.partial(names.get, key), functools.partial(names.__setitem__, key)
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            if isinstance(cell.cell_contents, PLAIN + CONTAINERS):
                content = functools.partial(getattr, cell, "cell_contents")
                yield key, content, functools.partial(setattr, cell, "cell_contents")
    for at, value in enumerate([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]):
        if isinstance(value, CONTAINERS):
            yield f"default {at} of {function.__qualname__}", functools.partial(_constant, value), _constant


def _constant(value: Any) -> Any:
    return value


def _functions_of(cls: type) -> list[FunctionType]:
    """The methods of a class, and the functions that they name, in the user's own code."""
    todo = [f for value in vars(cls).values() if inspect.isfunction(f := getattr(value, "__func__", value))]
    functions: list[FunctionType] = []
    while todo and len(functions) < MOST:
        function = todo.pop()
        if function in functions or function.__module__.partition(".")[0] == "torch":
            continue
        functions.append(function)
        named = [function.__globals__.get(key) for key in function.__code__.co_names]
        todo += [value for value in named if inspect.isfunction(value)]
    return functions


def _somebodys(cls: type) -> bool:
    """Whether a class is not torch's, which keeps nothing of the kind."""
    return issubclass(cls, nn.Module) and not cls.__module__.startswith("torch.")
