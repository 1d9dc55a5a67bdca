"""Whether something is faster: the old and the new in turn, on copies, at the sizes that a model has."""

from __future__ import annotations

import copy
import functools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.ops.rope import turns
from normkit.surgery import adding, turning
from normkit.surgery.flow import arguments, tensors_in
from normkit.surgery.recognition.specimen import quiet

ROUNDS, CALLS = 9, 3


def race_addition(now: nn.Module, new: nn.Module, shape: Iterable[int], training: bool) -> tuple[float, float]:
    """Return the seconds of an addition and a norm as it is, and of both in one pass, medians of turns about."""
    pair = _drawn(now, [shape, shape])
    old, twin = (copy.deepcopy(norm).train(training) for norm in (now, new))

    def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return old(total), total

    return _raced([_call(way, pair, training) for way in (apart, functools.partial(adding.added, twin))])


def race_turn(
    turn: turning.Turn,
    now: Sequence[nn.Module],
    new: Sequence[nn.Module],
    shapes: Sequence[Sequence[int]],
    training: bool,
) -> tuple[float, float]:
    """Return the seconds of norms and a turn of queries and keys as they are, and of both in one pass each."""
    front = [(s[0], s[2], s[1], s[3]) if turn.moved else tuple(s) for s in shapes]  # heads before tokens
    angles = [torch.cat([angle, angle], -1) for angle in turns(torch.arange(front[0][2]), front[0][3])]
    pair = _drawn(now[0], [(b, tokens, heads, wide) for b, heads, tokens, wide in front])
    cos, sin = (angle.expand(front[0][0], -1, -1).to(pair[0]) for angle in angles)
    old, twins = ([copy.deepcopy(norm).train(training) for norm in norms] for norms in (now, new))

    def apart(*given: Tensor) -> tuple[Tensor, Tensor]:
        if turn.moved:
            q, k = (norm(x).transpose(1, 2) for norm, x in zip(old, given, strict=True))
        else:
            q, k = (norm(x.transpose(1, 2)) for norm, x in zip(old, given, strict=True))
        return turn.by(q, k, cos, sin)

    def one(*given: Tensor) -> tuple[Tensor, Tensor]:
        q, k = (x.transpose(1, 2) for x in given)
        return turning.turned(turn.by, twins[0], twins[1], q, k, cos, sin)

    return _raced([_call(way, pair, training) for way in (apart, one)])


def race_models(before: nn.Module, after: nn.Module, example: Any, training: bool) -> tuple[float, float]:
    """Return the seconds of a pass of both, the second's as three turns of four have it at least.

    So that what other work on the machine does to a turn does not decide.
    """
    args, named = arguments(example)

    def call(model: nn.Module) -> Callable[[], None]:
        model.train(training)

        def run() -> None:
            with torch.set_grad_enabled(training):
                found = [t for t in tensors_in(model(*args, **named)) if t.is_floating_point()]
                if training and found[0].requires_grad:
                    found[0].sum().backward()

        return run

    with quiet():
        return _raced([call(model) for model in (before, after)], calls=1, least=True)


def _drawn(like: nn.Module, shapes: Iterable[Iterable[int]]) -> list[Tensor]:
    """Random inputs in a module's type and place."""
    own = next(iter(like.parameters()), torch.zeros(()))
    return [torch.randn(tuple(shape), dtype=own.dtype, device=own.device) for shape in shapes]


def race(old: nn.Module, new: nn.Module, shape: Iterable[int], training: bool) -> tuple[float, float]:
    """Return the seconds of a call of each, the second's from the median of the ratios of turns about, on copies."""
    inputs = _drawn(old, [shape])
    return _raced([_call(copy.deepcopy(module).train(training), inputs, training) for module in (old, new)])


def _raced(rivals: Sequence[Callable[[], None]], calls: int = CALLS, least: bool = False) -> tuple[float, float]:
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 1):
        order = list(zip(times, rivals, strict=True))
        for seen, call in order if turn % 2 else reversed(order):
            start = _now()
            for _ in range(calls):
                call()
            if turn:
                seen.append((_now() - start) / calls)
    before = statistics.median(times[0])
    ratios = [new / old for old, new in zip(*times, strict=True)]
    return before, before * (statistics.quantiles(ratios)[0] if least else statistics.median(ratios))


def _now() -> float:
    """The time when everything is done that was asked for."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _call(ways: Callable[..., Any], inputs: Sequence[Tensor], training: bool) -> Callable[[], None]:
    given = [x.clone().requires_grad_(training) for x in inputs]
    sent: list[Tensor] = []

    def call() -> None:
        with torch.set_grad_enabled(training):
            y = ways(*given)
            if training:
                results = y if isinstance(y, tuple) and len(given) > 1 else y[:1] if isinstance(y, tuple) else (y,)
                sent.extend(torch.ones_like(result) for result in results[len(sent) :])
                torch.autograd.backward(results, sent)

    return call
