"""Norms that a module's own code calls as functions of torch, where no module can be exchanged."""

from __future__ import annotations

import dis
import types
from typing import Any

from torch import nn
from torch.fx import GraphModule
from torch.nn import functional

NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "local_response_norm")


def norms(module: nn.Module) -> list[str]:
    """Return torch's functions of norms that the forward of a module names, or a graph calls.

    >>> norms(nn.LayerNorm(4)), norms(nn.Linear(4, 4))
    (['layer_norm'], [])
    """
    if isinstance(module, GraphModule):  # as torch.fx and torch.export make
        names = {getattr(node.target, "__name__", "").split(".")[0] for node in module.graph.nodes}
        return [name for name in NORMS if name in names]
    forward = getattr(type(module), "forward", None)
    return norms_in(forward) if isinstance(forward, types.FunctionType) else []


def norms_in(function: types.FunctionType) -> list[str]:
    """Return torch's functions of norms that a function names."""
    called = [value for value in _globals_of(function) if callable(value)]
    return [name for name in NORMS if getattr(functional, name) in called]


def _globals_of(function: types.FunctionType) -> list[Any]:
    """What a function reads of its module, along the attributes that it reads of that: ``torch.nn.functional.relu``."""
    values: list[Any] = []
    base: Any = None
    for step in dis.get_instructions(function):
        if step.opname == "LOAD_GLOBAL":
            base = function.__globals__.get(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            base = getattr(base, step.argval, None) if isinstance(base, types.ModuleType) else None
        else:
            base = None
        values.append(base)
    return values
