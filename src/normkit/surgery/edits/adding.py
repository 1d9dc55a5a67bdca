"""A residual addition and the norm behind it in one pass, in a block's source."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.residual.norms import add_then
from normkit.surgery.edits.source import Source, method, replace_source

NORMED = "_normed_{}"
ADDED, AGAIN = "_normkit_added", "_normkit_again"


def added(norm: nn.Module, x: Any, residual: Any) -> tuple[Tensor, Tensor]:
    """The norm of a sum, and the sum: in one pass where both have one shape and type."""
    plain = torch.is_tensor(x) and torch.is_tensor(residual)
    if plain and x.shape == residual.shape and x.dtype == residual.dtype:
        return add_then(norm, x, residual)
    total = x + residual
    return norm(total), total


class Sum(NamedTuple):
    """The statement that adds (None: the norm's own argument does), and whether a branch lies before the norm."""

    statement: ast.Assign | None
    addition: ast.BinOp
    branched: bool


def find_sums(source: Source) -> dict[str, Sum]:
    """The parts of a module that are called once, on a sum: by name, where that is made."""
    sums = {}
    calls = source.parts_called_once()
    for body in source.bodies():
        for at, statement in enumerate(body):
            for name, call in calls.items():
                if any(node is call for node in _always(statement)):
                    total = _sum(call.args[0], body[:at])
                    if total is not None:
                        sums[name] = total
    return sums


def _always(statement: ast.stmt) -> list[ast.AST]:
    """What a plain statement evaluates whatever happens."""
    if not isinstance(statement, ast.Assign | ast.Return | ast.Expr | ast.AugAssign):
        return []
    nodes, todo = [], [statement.value]
    while todo:
        node = todo.pop()
        nodes.append(node)
        if not isinstance(node, ast.IfExp | ast.BoolOp | ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp):
            todo += ast.iter_child_nodes(node)  # type: ignore[arg-type]
    return nodes  # type: ignore[return-value]


def _sum(argument: ast.expr, before: list[ast.stmt]) -> Sum | None:
    """The addition that an argument is, or was in the statements before, if nothing can have changed it since."""
    if not isinstance(argument, ast.Name):
        return _sum_of(None, argument, False)
    name, branched = argument.id, False
    for statement in reversed(before):
        if isinstance(statement, ast.If) and not _changes_in_place(statement):
            branched = True
            continue
        target, value = _assignment(statement)
        if not isinstance(value, ast.Name) or (branched and target == name):
            # a call may change in place what another name stands for
            return _sum_of(statement, value, branched) if target == name else None
        name = value.id if target == name else name
    return None


def _sum_of(statement: ast.stmt | None, value: ast.expr | None, branched: bool) -> Sum | None:
    return Sum(statement, value, branched) if _is_sum(value) else None  # type: ignore[arg-type]


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """The one name that a statement gives a value, and the value."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None, None
    target = statement.targets[0]
    return (target.id, statement.value) if isinstance(target, ast.Name) else (None, None)


def _is_sum(node: ast.expr) -> bool:
    both = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return both and not any(isinstance(side, ast.Constant) for side in (node.left, node.right))  # type: ignore[attr-defined]


def _changes_in_place(branch: ast.If) -> bool:
    """Whether a branch may change a tensor that it does not make."""
    for node in ast.walk(branch):
        if isinstance(node, ast.AugAssign | ast.Delete | ast.Return | ast.Global | ast.Nonlocal):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Attribute) and node.attr.endswith("_") and not node.attr.endswith("__"):
            return True
        if isinstance(node, ast.keyword) and node.arg in ("inplace", "out"):
            return True
    return False


def again(norm: nn.Module, x: Tensor, total: Tensor, normed: Tensor) -> Tensor:
    """What is known of a sum; the norm of what has taken its place."""
    return normed if x is total else norm(x)


def edit(source: Source, name: str) -> dict[str, Any]:
    """Let a source add in the norm of that name; return what it calls for that."""
    call, own = source.parts_called_once()[name], find_sums(source)[name]
    norm = call.func
    both = method(source, ADDED, norm, own.addition.left, own.addition.right)
    if own.statement is None:
        replace_source(source.tree, call, ast.Subscript(both, ast.Constant(0), ast.Load()))
        return {ADDED: added}
    normed, total = NORMED.format(name), f"_total_{name}"
    kept: Any = own.statement.targets[0]
    known: ast.expr = ast.Name(normed, ast.Load())
    if own.branched:
        known = method(source, AGAIN, norm, call.args[0], ast.Name(total, ast.Load()), known)
    replace_source(source.tree, call, known)
    own.statement.targets = [ast.Tuple([ast.Name(normed, ast.Store()), ast.Name(total, ast.Store())], ast.Store())]
    own.statement.value = both
    for body in source.bodies():
        if own.statement in body:
            body.insert(body.index(own.statement) + 1, ast.Assign([kept], ast.Name(total, ast.Load())))
            break
    return {ADDED: added, AGAIN: again}
