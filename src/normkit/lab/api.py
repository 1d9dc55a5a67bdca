"""The comparison from Python: :func:`compare`, in a script or a notebook, does what ``normkit compare`` does.

result = nk.compare(model=Net, data=loader, norms=["layernorm", "dyt"], steps=500)
result                      # in a notebook, the ranked table, what it comes to, and the losses
result.table                # the numbers
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normkit.check import plain
from normkit.kinds.arguments import nearest
from normkit.lab import course
from normkit.lab.plan import data as data_of
from normkit.lab.plan import handed, samples, tasks
from normkit.lab.plan.options import OPTIONS, open_options
from normkit.lab.plan.settings import HANDED, Option, in_python
from normkit.lab.result import Result
from normkit.optional import require_group
from normkit.safe import say
from normkit.threads import processor_by_default, threads

__all__ = ["compare"]

TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str, Path), "a name"),
}
GIVEN = re.compile(rf"{handed.PREFIX}([^#'\s]*)(?:#\w+(?:\.\w+)*)?")  # what was handed in, with its print
FIRST = ("norm", "model", "data", "val", "metric")  # before the others
ARGUMENTS = {one.called: one for one in ({name: OPTIONS[name] for name in FIRST} | OPTIONS).values()}


def compare(**options: Any) -> Result:
    """Train variants of a model side by side, and rank them: what the command ``normkit compare`` does, from Python.

    The same plan is carried out in the same processes, with the same logs and report. A call that was stopped goes on
    where it stopped when it is made again; one that has ended trains nothing.

    >>> from normkit.lab.api import compare
    >>> compare(norms=["layernorm"], seed=3)
    Traceback (most recent call last):
    TypeError: compare() has no argument 'seed'; did you mean 'seeds' or 'sharded' or 'seconds'?

    Args:
    """
    require_group("lab")
    return _run({name: value for name, value in options.items() if value is not None})


def argument_lines() -> str:
    """Return the arguments as a docstring lists them."""
    lines = (f"{name}: {one.describe(python=True)}." for name, one in ARGUMENTS.items())
    return "".join(
        textwrap.fill(line, 120, initial_indent=" " * 8, subsequent_indent=" " * 12) + "\n" for line in lines
    )


def signature() -> inspect.Signature:
    """Return the arguments with their types."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [inspect.Parameter(name, keyword, default=None, annotation=annotation(one)) for name, one in ARGUMENTS.items()],
        return_annotation="Result",
    )


def annotation(one: Option) -> str:
    """Return the type of an argument.

    >>> annotation(OPTIONS["norm"]), annotation(OPTIONS["lr"]), annotation(OPTIONS["steps"])
    ('str | Sequence[str] | None', 'float | Sequence[float] | None', 'int | None')
    """
    if one.name == "variants":
        return "str | Path | Sequence[str | Mapping[str, Any]] | None"
    if one.handed:
        return f"str | {'Callable[..., Any]' if one.handed == 'function' else 'Any'} | None"
    kind = "str | Path" if one.name == "out" else one.kind.__name__
    return f"{kind} | Sequence[{kind}] | None" if one.many else f"{kind} | None"


compare.__doc__ = f"{(compare.__doc__ or '').rstrip()}\n{argument_lines()}    "
compare.__signature__ = signature()  # type: ignore[attr-defined]


@torch.inference_mode(False)
def _run(arguments: Mapping[str, Any]) -> Result:
    tasks.load_task.cache_clear()  # by name alone, what another cell handed in could be taken for this
    try:
        with in_python(), without_prints(), keep_chances():
            options = options_of(arguments)
            results = course.compare(options, [_call_text(arguments)])
    except KeyboardInterrupt:
        say(f"\nstopped; the same call goes on from {arguments.get('out', OPTIONS['out'].default)}", file=sys.stderr)
        raise
    finally:
        tasks.load_task.cache_clear()
    if crashes := course.crashes(results):
        say(f"{crashes}; the same call with retry=True runs them again", file=sys.stderr)
    return Result(options.out)


def options_of(arguments: Mapping[str, Any]) -> argparse.Namespace:
    """Return what the command would have read: its defaults, and what is given."""
    options = open_options()
    for name, value in arguments.items():
        if name not in ARGUMENTS:
            raise TypeError(f"compare() has no argument {name!r}; {nearest(name, sorted(ARGUMENTS))}")
        setattr(options, ARGUMENTS[name].name, read(ARGUMENTS[name], value))
    _require_a_way_to_workers(options)
    return options


def read(one: Option, value: Any) -> Any:
    """Return a value as the command would have read it, or say what is wanted; a list of variants stands for itself."""
    if one.handed:
        return name_of(one, value)
    value = plain(value)
    if one.name == "variants" and isinstance(value, Sequence) and not isinstance(value, str):
        return value
    if one.many:
        parts = _parts(value)
        if not parts:
            raise ValueError(f"{one.called} must hold at least one, not {value!r}")
        return [_one(one, part) for part in parts]
    if one.kind is bool and not isinstance(value, bool):
        raise TypeError(f"{one.called} must be True or False, not {value!r}")
    return value if one.kind is bool else _one(one, value)


def _parts(value: Any) -> list[Any]:
    """Return what a list or another sequence holds; a name or a number alone is one part."""
    try:
        return [value] if isinstance(value, str) else list(value)
    except TypeError:
        return [value]


def name_of(one: Option, value: Any) -> str:
    """Return the name by which the plan knows a model, data or a measure; what is none is handed in."""
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, nn.Module):
        raise TypeError(
            f"{one.name} must be a function that makes it, such as lambda: {type(value).__name__}(...), not the one "
            f"{type(value).__name__}: each run begins with weights of its own"
        )
    if one.handed == "function" and not callable(value):
        raise TypeError(f"{one.name} must be a name or a function, not {value!r}")
    print_ = samples.print_handed(value, one.handed == "function")
    return handed.hand_in(value, print_ or ("" if one.name == "data" else one.name))  # so that no two have one name


def _one(one: Option, value: Any) -> Any:
    (kinds, expected), value = TYPES[one.kind], plain(value)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{one.called} must be {expected}, not {value!r}")
    if one.choices is not None and value not in one.choices:
        raise ValueError(f"{one.called} must be one of {', '.join(map(repr, one.choices))}, not {value!r}")
    return str(value) if one.kind is str else value


def _require_a_way_to_workers(options: argparse.Namespace) -> None:
    """Train in this process where what was handed in cannot be sent to others."""
    if options.engine == "here":
        return
    for name in ("a method of yours", *HANDED):
        try:
            handed.pack([getattr(options, name, "")])
        except Exception as error:  # each thing that cannot be pickled has its own way to refuse
            if options.engine not in (None, "local"):
                raise ValueError(f"{name} cannot be sent to other processes: {error}; take engine='here'") from error
            options.engine = "here"
            say(f"{name} cannot be sent to other processes, so runs go on in this one: {error}", file=sys.stderr)
            return


@contextmanager
def without_prints() -> Iterator[None]:
    """Leave out of an error the prints of what was handed in."""
    try:
        yield
    except ValueError as error:
        raise ValueError(GIVEN.sub(r"\1", str(error))).with_traceback(error.__traceback__) from error.__cause__


@contextmanager
def keep_chances() -> Iterator[None]:
    """Give the caller back what torch, NumPy and Python draw next, and torch's threads, default device and type."""
    usual = torch.get_default_dtype()
    with threads(torch.get_num_threads()), data_of.chances(0), processor_by_default():
        torch.set_default_dtype(torch.float32)  # as in the processes of another engine
        try:
            yield
        finally:
            torch.set_default_dtype(usual)


def _call_text(arguments: Mapping[str, Any]) -> str:
    """Write the call, for the report."""

    def text(value: Any) -> str:
        value = plain(value)
        written = isinstance(value, str | int | float | list | tuple)
        return repr(value) if written else str(getattr(value, "__name__", type(value).__name__))

    return f"nk.compare({', '.join(f'{name}={text(value)}' for name, value in arguments.items())})"
