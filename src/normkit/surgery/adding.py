"""A residual addition and the norm behind it in one pass: a block's forward written anew from its graph."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, fx, nn

ADDITIONS = (operator.add, torch.add)


def added(norm: Any, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The norm of a sum, and the sum: in one pass where both have one shape and type."""
    if x.shape == residual.shape and x.dtype == residual.dtype:
        return norm.add_norm(x, residual)
    total = x + residual
    return norm(total), total


class _Leaves(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _trace(block: nn.Module, training: bool, given: dict[str, Any] | None = None) -> fx.Graph:
    twin = copy.copy(block)
    twin.training = training
    return _Leaves().trace(twin, concrete_args=given)


def _steps(graph: fx.Graph) -> list[tuple[str, str]]:
    """What a graph does, its checks of arguments left out."""
    own = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return [(node.op, str(node.target)) for node in own if "assert" not in str(node.target)]


def graph_of(block: nn.Module) -> fx.Graph:
    """A block's graph with its parts as single steps; a ValueError where it is not always the same."""
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(block.forward).parameters.items()
        if parameter.default is not parameter.empty
    }
    try:
        graph = _trace(block, True)
        others = [_trace(block, False), _trace(block, True, given)]
    except Exception as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"its block cannot be traced: {line[:80]}") from error
    if any(_steps(other) != _steps(graph) for other in others):
        raise ValueError("what its block does depends on its mode or on optional arguments")
    return graph


def additions(graph: fx.Graph) -> dict[str, tuple[fx.Node, fx.Node]]:
    """The parts that are called once, on a sum of two results alone: by name their calls and the sums."""
    calls = [node for node in graph.nodes if node.op == "call_module"]
    names = [node.target for node in calls]
    found = {}
    for call in calls:
        total = call.args[0] if len(call.args) == 1 and not call.kwargs else None
        if names.count(call.target) == 1 and isinstance(total, fx.Node) and _is_sum(total):
            found[call.target] = call, total
    return found


def _is_sum(node: fx.Node) -> bool:
    both = len(node.args) == 2 and all(isinstance(part, fx.Node) for part in node.args)
    return node.op == "call_function" and node.target in ADDITIONS and both and not node.kwargs


def rewritten(block: nn.Module, graph: fx.Graph, norms: Collection[str]) -> type[nn.Module]:
    """A class derived from the block's, whose forward takes additions into those norms; names and state stay."""
    found = additions(graph)
    for name in norms:
        call, total = found[name]
        with graph.inserting_before(total):
            norm = graph.get_attr(name)
            pair = graph.call_function(added, (norm, *total.args))
            normed, whole = (graph.call_function(operator.getitem, (pair, i)) for i in (0, 1))
        call.replace_all_uses_with(normed)
        total.replace_all_uses_with(whole)
        graph.erase_node(call)
        graph.erase_node(total)
    code = graph.python_code("self")
    scope = dict(code.globals)
    exec(code.src, scope)
    forward: Callable[..., Any] = scope["forward"]
    own = type(block)
    return type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__, "__doc__": own.__doc__})
