"""Whether something is faster: the old and the new in turn, on copies, at the sizes that a model has.

The new wins a turn in which it takes less time than the old. Were it no faster, it would win every second turn at
most, and who bets on it, as :func:`odds` does, would multiply what he has by ``SURE`` in one race of ``SURE`` at most,
however long they go on. So of twenty races of what is no faster, at most one says that it is; who races two ways to
change one model asks for twice ``SURE`` of each.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.ops.rope import turns
from normkit.parameters import tensors_in
from normkit.surgery.edits import adding, turning
from normkit.surgery.flow import DEPTH, arguments
from normkit.surgery.recognition.specimen import quiet

SURE = 20.0
MOST, SECONDS = 400, 120.0  # turns, and for how long beyond as many as can decide
CALLS = 3  # of a site in a turn
MARGIN = 0.97  # of the old one's time: what a site must take to win, as what it gains in a model is less than alone


class Outcome(NamedTuple):
    """The seconds of a call of both, the new one's by the median of turns, and whether it is faster for sure.

    decided: whether it is known for sure that it is faster, or that it is not.
    """

    before: float
    after: float
    faster: bool
    decided: bool = True

    def why_not(self, what: str) -> str:
        """Say why what did not win is left, beside these times."""
        if self.after >= self.before:
            return f"{what} is no faster"
        if not self.decided:
            return f"that {what} is faster is not sure"
        return f"{what} is faster by less than {1 - MARGIN:.0%}"


def race_addition(now: nn.Module, new: nn.Module, shape: Iterable[int], training: bool) -> Outcome:
    """Race an addition and a norm as it is with both in one pass."""
    pair = _random_inputs(now, [shape, shape])
    old, twin = (copy.deepcopy(norm).train(training) for norm in (now, new))

    def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return old(total), total

    calls = [_call(way, pair, training) for way in (apart, functools.partial(adding.added, twin))]
    return _race(calls, pair[0].device)


def race_turn(
    turn: turning.Turn,
    now: Sequence[nn.Module],
    new: Sequence[nn.Module],
    shapes: Sequence[Sequence[int]],
    training: bool,
) -> Outcome:
    """Race norms and a turn of queries and keys as they are with both in one pass each."""
    front = [(s[0], s[2], s[1], s[3]) if turn.moved else tuple(s) for s in shapes]  # heads before tokens
    angles = [torch.cat([angle, angle], -1) for angle in turns(torch.arange(front[0][2], device="cpu"), front[0][3])]
    pair = _random_inputs(now[0], [(b, tokens, heads, wide) for b, heads, tokens, wide in front])
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

    return _race([_call(way, pair, training) for way in (apart, one)], pair[0].device)


def race_models(before: nn.Module, after: nn.Module, example: Any, training: bool, sure: float = SURE) -> Outcome:
    """Race a pass of both; the gradients that they hold go away.

    They should hold the same parameters, as copies of one model may differ in speed by where they lie in memory.
    """
    args, named = arguments(example)

    def call(model: nn.Module) -> Callable[[], None]:
        model.train(training)

        def run() -> None:
            model.zero_grad()
            with torch.set_grad_enabled(training):
                outputs = [t for t in tensors_in(model(*args, **named), DEPTH) if t.is_floating_point()]
                if training and outputs and outputs[0].requires_grad:
                    outputs[0].sum().backward()

        return run

    device = next(before.parameters(), torch.zeros(())).device
    with quiet():
        return _race([call(model) for model in (before, after)], device, 1, 1.0, sure)


def _random_inputs(like: nn.Module, shapes: Iterable[Iterable[int]]) -> list[Tensor]:
    """Random inputs in a module's type and place."""
    own = next(iter(like.parameters()), torch.zeros(()))
    return [torch.randn(tuple(shape), dtype=own.dtype, device=own.device) for shape in shapes]


def takes(module: nn.Module, shape: Iterable[int]) -> bool:
    """Whether a module takes an input of a shape, tried on a copy in evaluation."""
    try:
        with torch.no_grad():
            copy.deepcopy(module).eval()(*_random_inputs(module, [shape]))
    except Exception:
        return False
    return True


def race(old: nn.Module, new: nn.Module, shape: Iterable[int], training: bool) -> Outcome:
    """Race two modules, on copies."""
    inputs = _random_inputs(old, [shape])
    calls = [_call(copy.deepcopy(module).train(training), inputs, training) for module in (old, new)]
    return _race(calls, inputs[0].device)


@functools.cache
def odds(won: int, lost: int) -> float:
    """What 1 has become after bets on the winner at even odds, if all shares of wins above half were thought alike.

    >>> odds(1, 0), odds(7, 0), round(odds(10, 1), 1)
    (1.5, 31.875, 30.9)
    """
    turns = won + lost
    return sum(math.comb(turns + 1, k) for k in range(won + 1)) / (turns + 1) / math.comb(turns, won)


@functools.cache
def fewest(sure: float) -> int:
    """How many turns decide, if all are won.

    >>> fewest(SURE), fewest(2 * SURE)
    (7, 8)
    """
    return next(turns for turns in itertools.count() if odds(turns, 0) >= sure)


def _race(
    rivals: Sequence[Callable[[], None]],
    device: torch.device,
    calls: int = CALLS,
    margin: float = MARGIN,
    sure: float = SURE,
) -> Outcome:
    """Let both run in turn until it is decided or cannot be any more.

    A coin says who is first, so that no rhythm of what else the machine does can fall on one of them alone.
    """
    now, coin = _clock(device), random.Random(0)

    def elapsed(rival: Callable[[], None]) -> float:
        start = now()
        for _ in range(calls):
            rival()
        return (now() - start) / calls

    spent = sum(map(elapsed, rivals)) * calls  # a turn to warm up
    times: list[tuple[float, float]] = []
    won = lost = 0
    while _open(won, lost, spent / (won + lost + 1), sure):
        ahead = coin.randrange(2)
        first, second = elapsed(rivals[ahead]), elapsed(rivals[1 - ahead])
        old, new = (second, first) if ahead else (first, second)
        times.append((old, new))
        won, lost = (won + 1, lost) if new < margin * old else (won, lost + 1)
        spent += (old + new) * calls
    before = statistics.median(old for old, _ in times)
    after = before * statistics.median(new / old for old, new in times)
    return Outcome(before, after, odds(won, lost) >= sure, max(odds(won, lost), odds(lost, won)) >= sure)


def _open(won: int, lost: int, turn: float, sure: float) -> bool:
    """Whether neither side has won and the new one still can, if a turn takes so many seconds."""
    most = min(MOST, max(fewest(sure), int(SECONDS / max(turn, 1e-9))))
    return won + lost < most and max(odds(won, lost), odds(lost, won)) < sure <= odds(most - lost, lost)


def _clock(device: torch.device) -> Callable[[], float]:
    """What tells the time when everything is done that was asked for.

    On a CPU the processor's, which other work takes none of, unless it adds up that of several threads or, on Windows,
    ticks too slowly.
    """
    if device.type == "cpu":
        return time.process_time if torch.get_num_threads() == 1 and sys.platform != "win32" else time.perf_counter

    def now() -> float:
        torch.accelerator.synchronize(device)
        return time.perf_counter()

    return now


def _call(ways: Callable[..., Any], inputs: Sequence[Tensor], training: bool) -> Callable[[], None]:
    leaves = [x.clone().requires_grad_(training) for x in inputs]
    sent: list[Tensor] = []

    def call() -> None:
        with torch.set_grad_enabled(training):
            y = ways(*leaves)
            if training:
                results = y if isinstance(y, tuple) and len(leaves) > 1 else y[:1] if isinstance(y, tuple) else (y,)
                sent.extend(torch.ones_like(result) for result in results[len(sent) :])
                torch.autograd.backward(results, sent)

    return call
