"""The same numbers, faster: what a model's norms compute, on the library's kernels."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from normkit.norm import Norm
from normkit.surgery import adding, proof
from normkit.surgery.changes import Change, Report, places, replaced
from normkit.surgery.recognition.recognize import Match, sized_table
from normkit.surgery.recognition.specimen import inputs_of
from normkit.where import Where, chosen

__all__ = ["fuse"]

ROWS, ROUNDS, CALLS = 512, 9, 3
LEAST = 0.97  # of its own time: what a site must take to be changed, so that noise alone changes none


def fuse(
    model: nn.Module, example: Any = None, *, where: Where = None, inplace: bool = True, training: bool | None = None
) -> Report:
    """Put the library's norms where a model has the same ones, and only where they are faster.

    Each kind of site is timed, the old and the new in turn, at the size that it has with the example; where the new one
    is no faster the site is left alone and the report says so. Names in ``state_dict`` stay, so that checkpoints load
    and save as before.

    With an example, residual additions go into the norms behind them too, where the block that holds a norm can be
    traced and does the same in either mode: its class becomes one derived from it, whose forward was written anew from
    its graph with the flags that it has. Outputs are compared in float64 before anything is changed.

    Args:
        model: any model.
        example: an input of the model: a tensor, a tuple of arguments or a dictionary of named ones.
        where: only sites whose name fits a pattern, is in a list, or is let by a function of name and module.
        inplace: change the model; else a copy, which is the report's ``model``.
        training: time a forward and a backward pass, not a forward pass alone (as the model's mode is).

    >>> fuse(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    site  was  became  difference  time
    0 of 0 sites changed
    """
    model = model if inplace else copy.deepcopy(model)
    training = model.training if training is None else training
    sizes = {} if example is None else inputs_of(model, example)
    timed: dict[Any, tuple[float, float]] = {}
    changes: list[Change] = []
    made: dict[str, nn.Module] = {}
    for name, match in sized_table(model, sizes).found.items():
        old = model.get_submodule(name)
        if not chosen(where, name, old):
            continue
        was = str(match).partition(": ")[2]
        why, new = _replacement(old, match)
        if new is None:
            changes.append(Change(name, was, why_not=why))
            continue
        shape = sizes.get(name, _shape(match))
        key = (was, type(old), shape, match.error.get("float32"))
        if key not in timed:
            timed[key] = race(old, new, shape, training)
        before, after = timed[key]
        if after > LEAST * before:
            changes.append(Change(name, was, None, (), None, before, after, "it is no faster"))
            continue
        made[name] = new
        difference = max((match.error[t] for t in ("float64", "float32") if t in match.error), default=None)
        changes.append(Change(name, was, type(new).__name__, tuple(match.carried.values()), difference, before, after))
    classes: dict[str, type[nn.Module]] = {}
    if example is not None:
        classes, changes = _with_additions(model, example, sizes, made, changes, training)
    replaced("fuse", model, made, inplace)
    for name, own in classes.items():
        model.get_submodule(name).__class__ = own
    return Report(made.get("", model), changes)


def _with_additions(
    model: nn.Module,
    example: Any,
    sizes: Mapping[str, tuple[int, ...]],
    made: dict[str, nn.Module],
    changes: list[Change],
    training: bool,
) -> tuple[dict[str, type[nn.Module]], list[Change]]:
    """The classes of blocks whose additions go into norms of the library, if that is faster and proven."""
    rows = {change.site: change for change in changes}
    classes: dict[str, type[nn.Module]] = {}
    for name, inner in _blocks(model, rows).items():
        block = model.get_submodule(name)
        prefix = f"{name}." if name else ""
        try:
            graph = adding.graph_of(block)
        except ValueError:
            continue
        taken = []
        for own in sorted(set(inner) & set(adding.additions(graph))):
            norm = made.get(prefix + own, block.get_submodule(own))
            if not hasattr(norm, "add_norm") or prefix + own not in sizes:
                continue
            before, after = race_addition(norm, sizes[prefix + own], training)
            if after <= LEAST * before:
                taken.append(own)
                was = rows[prefix + own]
                became = f"{type(norm).__name__} with the addition before it"
                rows[prefix + own] = replace(was, became=became, before=before, after=after, why_not=None)
        if taken:
            classes[name] = adding.rewritten(block, graph, taken)
    if not classes:
        return {}, changes
    after_all = replaced("fuse", copy.deepcopy(model), copy.deepcopy(made), True)
    for name, derived in classes.items():
        after_all.get_submodule(name).__class__ = derived
    try:
        proof.prove(copy.deepcopy(model).eval(), after_all.eval(), example)
    except Exception:  # a graph that leaves something out
        return {}, changes
    return classes, [rows[change.site] for change in changes]


def _blocks(model: nn.Module, rows: Collection[str]) -> dict[str, list[str]]:
    """The modules that hold sites as parts of their own, in one place alone, and what they call them."""
    found: dict[str, list[str]] = {}
    for site in rows:
        name, _, own = site.rpartition(".")
        block = model.get_submodule(name)
        if site and len(places(model, model.get_submodule(site))) == 1 and len(places(model, block)) == 1:
            found.setdefault(name, []).append(own)
    return found


def race_addition(norm: nn.Module, shape: Iterable[int], training: bool) -> tuple[float, float]:
    """Return the seconds of an addition and a norm, and of both in one pass, medians of turns about."""
    like = next(iter(norm.parameters()), torch.zeros(()))
    pair = [torch.randn(tuple(shape), dtype=like.dtype, device=like.device) for _ in range(2)]
    twin: Any = copy.deepcopy(norm).train(training)

    def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return twin(total), total

    return _raced([_call(way, pair, training) for way in (apart, twin.add_norm)])


def _shape(match: Match) -> tuple[int, ...]:
    """A size to be timed at where no example tells one."""
    width = next(value for value in match.kwargs.values() if isinstance(value, int | tuple))
    extent = width if isinstance(width, tuple) else (width,)
    last = match.module is None or not match.module.card.shape.image  # type: ignore[union-attr]
    return (ROWS, *extent) if last else (8, *extent, 14, 14)


def _replacement(old: nn.Module, match: Match) -> tuple[str, nn.Module | None]:
    """The same norm of the library, with the old one's names; or why there is none."""
    if not match.sized:
        return "its width is not known; an example tells it", None
    if isinstance(old, Norm):
        return "it is the library's already", None
    if match.behind:
        return f"it has its {match.behind[0]} behind the norm", None
    new = match.module
    if new is None:
        return "it holds no numbers", None
    learned = dict(old.named_parameters())
    for ours, theirs in match.carried.items():
        if old.state_dict()[theirs].shape != new.state_dict()[ours].shape:
            return f"its {theirs} has another shape", None
        if theirs in learned:
            setattr(new, ours, learned[theirs])  # the parameter itself: an optimizer holds it
    others = set(old.state_dict()) - set(match.carried.values()) - set(new.state_dict())
    if others:
        return f"its {sorted(others)[0]} would be lost", None
    if any(ours != theirs for ours, theirs in match.carried.items()):
        _rename(new, match.carried)
    return "", new


def _rename(module: nn.Module, names: dict[str, str]) -> None:
    """Let a module save and load its tensors under other names."""

    def save(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        for ours, theirs in names.items():
            if prefix + ours in state:
                state[prefix + theirs] = state.pop(prefix + ours)

    def load(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        for ours, theirs in names.items():
            if prefix + theirs in state:
                state[prefix + ours] = state.pop(prefix + theirs)

    module.register_state_dict_post_hook(save)
    module.register_load_state_dict_pre_hook(load)


def race(old: nn.Module, new: nn.Module, shape: Iterable[int], training: bool) -> tuple[float, float]:
    """Return the seconds of a call of each, medians of turns about, on copies."""
    like = next(iter(old.parameters()), torch.zeros(()))
    x = torch.randn(tuple(shape), dtype=like.dtype, device=like.device)
    return _raced([_call(copy.deepcopy(module).train(training), [x], training) for module in (old, new)])


def _raced(rivals: Sequence[Callable[[], None]]) -> tuple[float, float]:
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 1):
        for seen, call in zip(times, rivals, strict=True):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            if turn:
                seen.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times[0]), statistics.median(times[1])


def _call(ways: Callable[..., Any], inputs: Sequence[Tensor], training: bool) -> Callable[[], None]:
    given = [x.clone().requires_grad_(training) for x in inputs]
    sent = torch.ones_like(given[0])

    def call() -> None:
        with torch.set_grad_enabled(training):
            y = ways(*given)
            if training:
                results = y if isinstance(y, tuple) and len(given) > 1 else y[:1] if isinstance(y, tuple) else (y,)
                torch.autograd.backward(results, [sent] * len(results))

    return call
