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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normkit.kinds.arguments import nearest
from normkit.lab import cli, course
from normkit.lab.plan import data as data_of
from normkit.lab.plan import handed, samples, tasks
from normkit.lab.result import Result
from normkit.optional import require_group
from normkit.safe import say

__all__ = ["compare"]

NAMED = ("model", "train", "data", "val", "metric")  # what may be handed in itself, where the command takes its name
FUNCTIONS = ("model", "train", "metric")
TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    None: ((str, Path), "a name"),
}
OPTION = re.compile(r"(?<!\w)--([a-z]+(?:-[a-z]+)*)")
GIVEN = re.compile(rf"{handed.PREFIX}([^#'\s]*)(?:#[0-9a-f]+)?")  # what was handed in, with its print


def compare(
    *,
    norms: Sequence[str] | None = None,
    model: str | Callable[..., nn.Module] | None = None,
    data: Any = None,
    val: Any = None,
    metric: str | Callable[..., Any] | None = None,
    placements: Sequence[str] | None = None,
    attentions: Sequence[str] | None = None,
    linears: Sequence[str] | None = None,
    optimizers: Sequence[str] | None = None,
    variants: str | Path | Sequence[str | Mapping[str, Any]] | None = None,
    baseline: str | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    lr: float | Sequence[float] | None = None,
    train: str | Callable[..., float] | None = None,
    out: str | Path = cli.WHERE,
    **options: Any,
) -> Result:
    """Train variants of a model side by side, and rank them: what the command ``normkit compare`` does, from Python.

    The same plan is carried out in the same processes, with the same logs and report. A call that was stopped goes on
    where it stopped when it is made again; one that has ended trains nothing.

    >>> from normkit.lab.api import compare
    >>> compare(norms=["layernorm"], seed=3)
    Traceback (most recent call last):
    TypeError: compare() has no argument 'seed'; did you mean 'seeds' or 'sharded' or 'seconds'?

    Args:
        norms: norms of the catalogue, with arguments after a colon: ``"groupnorm:num_groups=4"``; ``"original"`` leaves
            a model as it is.
        model: a function that makes the model, whose norms are exchanged, or that takes ``norm``, a function of the
            width; or a name as the command takes it: ``"decoder"``, ``"timm:resnet18"``, ``"hf:PATH"``,
            ``"module:factory"``; ``"decoder:depth=2"`` by default.
        data: a loader, a data set, batches, or a function that returns such; or a name as the command takes it.
        val: the same for data that are held out; a part of ``data`` is by default.
        metric: ``"loss"``, ``"accuracy"``, or a function of the model and the list of held-out batches.
        placements, attentions, linears, optimizers: what else varies, by name; all are crossed.
        variants: instead, a list of mappings, each with a norm and what else the variant has of its own, such as
            ``[{"norm": "layernorm"}, {"name": "short", "norm": "dyt", "steps": 100, "lr": 0.003}]``; or a YAML file.
        baseline: the variant that others are tested against, the first by default.
        seeds: runs of each variant.
        steps: steps of a run.
        seconds: seconds of training of a run, instead of steps.
        lr: learning rates to search, or one that all take.
        train: a training loop of your own, instead of model and data: ``train(build, seed, log)``, where
            ``build(width)`` is a norm or ``build(model)`` exchanges those of a model, ``log(step, loss=...)`` writes
            down how it goes, and what is returned is the measure: a loss, unless ``metric`` names it.
        out: the folder for logs and report.
        options: what else the command takes, as ``normkit compare --help`` has it, with ``_`` for ``-``: ``batch=32``,
            ``until_decided=True``, ``twin=True``, ``margin=0.02``, ``workers=2``, ``device="cpu"``, ``fresh=True``.
    """
    require_group("lab")
    given = {name: value for name, value in locals().items() if name != "options" and value is not None}
    return _carried_out({**given, **options})


def _carried_out(given: Mapping[str, Any]) -> Result:
    tasks.loaded.cache_clear()  # by name alone, what another cell handed in could be taken for this
    try:
        with in_python(), as_it_was():
            options = options_of(given)
            results = course.compare(options, [_called(given)])
    except KeyboardInterrupt:
        say(f"\nstopped; the same call goes on from {given['out']}", file=sys.stderr)
        raise
    finally:
        tasks.loaded.cache_clear()
    if crashes := course.crashes(results):
        say(f"{crashes}; the same call with retry=True runs them again", file=sys.stderr)
    return Result(options.out)


def options_of(given: Mapping[str, Any]) -> argparse.Namespace:
    """Return what the command would have read: its defaults, and what is given."""
    command = argparse.ArgumentParser()
    cli.add_arguments(command)
    known = {action.dest: action for action in command._actions if action.dest != "help"}
    several = {f"{name}es" if name.endswith("s") else f"{name}s": name for name in known if known[name].nargs == "+"}
    options = command.parse_args([])
    for name, value in given.items():
        dest = several.get(name, name)
        if dest not in known or (dest in several.values() and name == dest != "lr"):
            there = sorted({*several, *known} - {*several.values()} | {"lr"})
            raise TypeError(f"compare() has no argument {name!r}; {nearest(name, there)}")
        if value is not None:
            setattr(options, dest, read(name, known[dest], value))
    _require_a_way_to_workers(options)
    return options


def read(name: str, action: argparse.Action, value: Any) -> Any:
    """Return what stands for a value among the options; a list of variants stands for itself."""
    if name in NAMED:
        return named(name, value)
    if name == "variants" and isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return taken(name, action, value)


def named(name: str, value: Any) -> str:
    """Return the name by which the plan knows a model, data or a measure; what is none is handed in."""
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, nn.Module):
        raise TypeError(
            f"{name} must be a function that makes it, such as lambda: {type(value).__name__}(...), not the one "
            f"{type(value).__name__}: each run begins with weights of its own"
        )
    if name in FUNCTIONS and not callable(value):
        raise TypeError(f"{name} must be a name or a function, not {value!r}")
    is_code = inspect.isroutine(value) or inspect.isclass(value) or name in FUNCTIONS
    return handed.hand_in(name, value, handed.print_of(value) if is_code else samples.sketch(value))


def taken(name: str, action: argparse.Action, value: Any) -> Any:
    """Return a value as the command would have read it, or say what is wanted."""
    if action.nargs == "+":
        values = [value] if isinstance(value, str | float | int) else list(value)
        return [_one(name, action, one) for one in values]
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {value!r}")
        return value
    return _one(name, action, value)


def _one(name: str, action: argparse.Action, value: Any) -> Any:
    kinds, wanted = TYPES[action.type]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, not {value!r}")
    if action.choices is not None and value not in action.choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, action.choices))}, not {value!r}")
    return value if action.type else str(value)


def _require_a_way_to_workers(options: argparse.Namespace) -> None:
    """Train in this process where what was handed in cannot be sent to others."""
    if options.engine == "here":
        return
    for name in ("a method of yours", *NAMED):
        try:
            handed.packed([getattr(options, name, "")])
        except Exception as error:  # each thing that cannot be pickled has its own way to refuse
            if options.engine != "local":
                raise ValueError(f"{name} cannot be sent to other processes: {error}; take engine='here'") from error
            options.engine = "here"
            say(f"{name} cannot be sent to other processes, so runs go on in this one: {error}", file=sys.stderr)
            return


@contextmanager
def in_python() -> Iterator[None]:
    """Say in an error ``margin`` where the command would say ``--margin``."""
    try:
        yield
    except ValueError as error:
        said = OPTION.sub(lambda found: found[1].replace("-", "_"), str(error))
        said = GIVEN.sub(r"\1", said)
        raise ValueError(said).with_traceback(error.__traceback__) from error.__cause__


@contextmanager
def as_it_was() -> Iterator[None]:
    """Give the caller back what torch, NumPy and Python draw next, and torch's threads."""
    threads = torch.get_num_threads()
    try:
        with data_of.chances(0):
            yield
    finally:
        torch.set_num_threads(threads)


def _called(given: Mapping[str, Any]) -> str:
    """Write the call, for the report."""

    def text(value: Any) -> str:
        plain = isinstance(value, str | int | float | list | tuple)
        return repr(value) if plain else str(getattr(value, "__name__", type(value).__name__))

    return f"nk.compare({', '.join(f'{name}={text(value)}' for name, value in given.items())})"
