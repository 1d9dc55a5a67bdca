"""Remedies that fit the model: lines that run on it, by the names of its own modules."""

from __future__ import annotations

import math

import numpy as np

from normkit.watching.finding import Remedy, number
from normkit.watching.history import History


def has_norm(history: History) -> bool:
    """Whether a norm stands anywhere in the model."""
    return "norm" in history.facts["kinds"].values()


def norms_before(history: History, name: str) -> tuple[Remedy, ...]:
    """Return lines that put a norm before the function of a name, or behind the layer that feeds the layer of a name.

    Where a norm stands already, or the width is not known, there is none.
    """
    if has_norm(history):
        return ()
    layer, shape = layer_before(history, name)
    if not layer:
        return ()
    function = history.facts["kinds"].get(name) == "function"
    remedies = []
    for method in ("batchnorm", "layernorm"):
        norm = _norm(method, shape)
        inside = f'{norm}, model.get_submodule("{name}")' if function else f'model.get_submodule("{layer}"), {norm}'
        line = f'model.set_submodule("{name if function else layer}", nn.Sequential({inside}))'
        remedies.append(Remedy(method, line))
    return tuple(remedies)


def _norm(method: str, shape: list[int]) -> str:
    width = shape[0]
    if len(shape) == 4:
        return f"nn.BatchNorm2d({width})" if method == "batchnorm" else f"nn.GroupNorm(1, {width})"
    return f"nk.BatchNorm({width})" if method == "batchnorm" else f"nk.LayerNorm({width})"


def layer_before(history: History, name: str) -> tuple[str, list[int]]:
    """Return the last layer with a matrix that comes before a module, and the shape of its weight."""
    shapes, names = history.facts["shapes"], list(history.facts["kinds"])
    for layer in reversed(names[: names.index(name)] if name in names else []):
        shape = shapes.get(f"{layer}.weight", [])
        if len(shape) > 1 and history.facts["classes"].get(layer) != "Embedding":
            return layer, shape
    return "", []


def replacement(history: History, names: tuple[str, ...], function: str) -> str:
    """Return a line that puts another function where modules of the first's class stand; nothing where none is one."""
    kind = history.facts["classes"].get(next((n for n in names if history.facts["kinds"].get(n) == "function"), ""))
    if kind is None:
        return ""
    return (
        f"[model.set_submodule(name, {function}) for name, m in list(model.named_modules()) "
        f'if type(m).__name__ == "{kind}"]'
    )


def rate(history: History, name: str) -> str:
    """Write the learning rate that a parameter has now."""
    late = history.rates(name)[-1:]
    return number(float(late[0])) if len(late) and math.isfinite(late[0]) else "1e-3"


def largest_rate(history: History, name: str) -> float:
    """Return the largest learning rate that a parameter had, which is what a schedule was given; 0 where none is known.

    What is known of the optimizer from before the first step may be the smallest one of a warm-up.
    """
    return float(np.nanmax(history.rates(name), initial=0.0))


def set_rate(value: float) -> str:
    """Return a line that gives all groups a learning rate."""
    return f'for group in optimizer.param_groups: group["lr"] = {number(value)}'


def swap_line(history: History, norm: str) -> Remedy:
    """Return a line that puts a norm without running statistics where the model's batch norms stand."""
    widths = history.facts.get("widths", {})
    own = [widths[name] for name in history.names("variance_ratio") if name in widths]
    groups = math.gcd(*own, 32) if own else 4
    name = f"groupnorm:num_groups={max(groups // 4, 1)}" if norm == "groupnorm" else norm
    return Remedy(norm, f'nk.swap(model, {{"batchnorm": "{name}"}})  # keeps no statistics')
