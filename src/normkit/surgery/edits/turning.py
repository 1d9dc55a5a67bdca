"""The norms of queries and keys, and the rotary turn behind them, in one pass each, in an attention's source."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.ops.rope import rotate, turns
from normkit.residual.norms import watched
from normkit.surgery.edits.source import Source, method, replace_source

TURNED = "_normkit_turned"
MOVES = ("transpose", "swapaxes", "permute", "contiguous")
SIZES = (2, 5, 3, 8)  # samples, heads, tokens, features: a turn is tried at
CLOSE = 1e-6


def turned(
    turn: Callable[..., tuple[Tensor, Tensor]],
    query_norm: nn.Module,
    key_norm: nn.Module,
    q: Tensor,
    k: Tensor,
    *angles: Any,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """Queries and keys (B, heads, T, features), normalized and turned: in one pass each where their norms can."""
    norms = query_norm, key_norm
    if len(angles) != 2 or more or any(not hasattr(norm, "norm_rotate") or watched(norm) for norm in norms):
        return turn(query_norm(q), key_norm(k), *angles, **more)
    cos, sin = (angle[..., : angle.shape[-1] // 2].unsqueeze(1) for angle in angles)
    return query_norm.norm_rotate(q, (cos, sin)), key_norm.norm_rotate(k, (cos, sin))  # type: ignore[operator]


class Turn(NamedTuple):
    """Where queries and keys are turned, by which function, and whether their heads come to the front before that."""

    call: ast.Call
    by: Callable[..., tuple[Tensor, Tensor]]
    moved: bool


def find_turns(source: Source) -> dict[tuple[str, str], Turn]:
    """The pairs of norms whose results go nowhere but into a rotary turn, queries' first."""
    calls = source.parts_called_once()
    turns_of: dict[tuple[str, str], Turn] = {}
    for body in source.bodies():
        held: dict[str, tuple[str, bool]] = {}  # what holds a norm's result, and whether moved since
        for statement in body:
            pair = _turn(source, statement, held)
            if pair is not None:
                names, turn = pair
                turns_of[names] = turn
            for name in [name for name in held if name in _names(statement)]:
                del held[name]
            normed = _norm_of(source, statement, calls)
            if normed is not None:
                held[statement.targets[0].id] = normed  # type: ignore[attr-defined]
    return turns_of


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _norm_of(source: Source, statement: ast.stmt, calls: dict[str, ast.Call]) -> tuple[str, bool] | None:
    """The norm whose result a statement keeps in a name, at most with its axes moved."""
    if not isinstance(statement, ast.Assign) or [type(target) for target in statement.targets] != [ast.Name]:
        return None
    node, moved = statement.value, False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
        node, moved = node.func.value, True
    name = source.part(node)
    return (name, moved) if name is not None and name in calls else None


def _turn(
    source: Source, statement: ast.stmt, held: dict[str, tuple[str, bool]]
) -> tuple[tuple[str, str], Turn] | None:
    """The norms of what a statement turns, and the turn."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or len(call.args) != 4 or call.keywords:
        return None
    pair = [part.id for part in call.args[:2] if isinstance(part, ast.Name) and part.id in held]
    by = source.scope.get(call.func.id)
    others = {name for part in call.args[2:] for name in _names(part)}
    if len(set(pair)) != 2 or others & set(pair) or not callable(by) or not _turns_halves(by):
        return None
    (query, moved), (key, _) = (held[name] for name in pair)
    return (query, key), Turn(call, by, moved)


def _turns_halves(by: Callable[..., Any]) -> bool:
    """Whether a function of queries, keys, cosines and sines turns features i and i + half."""
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(SIZES, generator=g, dtype=torch.float64, device="cpu") for _ in range(2))
    cos, sin = turns(torch.arange(SIZES[2], device="cpu").expand(SIZES[0], -1), SIZES[-1], dtype=torch.float64)
    try:
        pair = by(q.clone(), k.clone(), *(torch.cat([angle, angle], -1) for angle in (cos, sin)))
        expected = [rotate(x, (cos.unsqueeze(1), sin.unsqueeze(1))) for x in (q, k)]
        return len(pair) == 2 and all(torch.allclose(a, b, atol=CLOSE) for a, b in zip(pair, expected, strict=True))
    except Exception:  # it is another function
        return False


def edit(source: Source, query: str, key: str) -> dict[str, Any]:
    """Let a source turn in the norms of those names; return what it calls for that."""
    call = find_turns(source)[query, key].call
    calls = source.parts_called_once()
    norms = [calls[name].func for name in (query, key)]
    for name in (query, key):
        replace_source(source.tree, calls[name], calls[name].args[0])
    replace_source(source.tree, call, method(source, TURNED, call.func, *norms, *call.args))
    return {TURNED: turned}
