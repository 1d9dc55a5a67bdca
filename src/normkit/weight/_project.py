"""Projections of stored weights, after every step of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.kinds import PARAMETRIZATION, Parametrization
from normkit.weight._apply import check_model
from normkit.weight._layers import (
    Row,
    Table,
    Where,
    holders,
    is_vector,
    misfit,
    named_outright,
    options_for,
    row_of,
    selects,
    weights,
)
from normkit.where import require_known


class Projection(nn.Module):
    """Maps that bring a model's weights back to where they belong; a call does so now, :meth:`remove` ends it.

    ``table`` tells which weights. What the maps remember, such as the lengths at the start, is in ``state_dict()``.
    """

    def __init__(self, table: Table, maps: list[tuple[nn.Module, str, Parametrization]], own: list[nn.Module]):
        super().__init__()
        self.table = table
        self.maps = nn.ModuleList(result for _, _, result in maps)
        # a tuple: they are not parts of this module
        self.places = tuple([(module, tensor) for module, tensor, _ in maps])
        self.own = tuple(own)
        self.handle: Any = None
        self.every, self.steps = 1, 0

    @torch.no_grad()
    def forward(self) -> None:
        """Project all weights in place."""
        for result, (module, tensor) in zip(self.maps, self.places, strict=True):
            result.project_(getattr(module, tensor))  # type: ignore[operator]
        for module in self.own:
            module.normalize_weights()  # type: ignore[operator]

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Count a step, and project if it is time; the optimizer's hook."""
        self.steps += 1
        if self.steps % self.every == 0:
            self()

    def remove(self) -> None:
        """Let the optimizer step without it."""
        self.handle.remove()


def project(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    name: str | None = None,
    *,
    where: Where = None,
    tensor: str = "weight",
    every: int = 1,
    **options: Any,
) -> Projection:
    """Project weights in place, now and after every step, by the optimizer's own hook; moments stay as they are.

    Args:
        model: the model.
        optimizer: whose steps are meant.
        name: a reparametrization that projects, ``"normalize-and-project"``, ``"ngpt-weights"`` or
            ``"weight-conditioning"``. None: the model's own projection, ``normalize_weights()``, which nGPT's have.
        where: which layers, as for :func:`apply`. None: linear layers and convolutions but the last one, which no norm
            follows.
        tensor: the name of what is projected.
        every: after how many steps.
        **options: arguments of the projection; one that is a function is called with the layer's name and weight.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> print(project(model, optimizer, "normalize-and-project").table)
    0  Linear     8x4  normalize-and-project
    1  LayerNorm  8    a vector
    2  Linear     2x8  the last layer
    normalize-and-project: 1 of 3 layers
    """
    check_model("project", model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"project: optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    check.size("project", "every", every)
    require_known("project", where, model)
    result = _own(model) if name is None else _name(model, name, where, tensor, options)
    result()
    result.every = every
    result.handle = optimizer.register_step_post_hook(result.after_step)
    return result


def spheres(model: nn.Module) -> list[nn.Module]:
    """Return what keeps weights on a sphere by itself: the model, or else its parts."""
    having = [(name, m) for name, m in model.named_modules() if hasattr(m, "normalize_weights")]
    inside = {
        name for name, _ in having for outer, _ in having if name != outer and name.startswith(outer and f"{outer}.")
    }
    return [module for name, module in having if name not in inside]


def _own(model: nn.Module) -> Projection:
    owners = spheres(model)
    if not owners:
        raise ValueError("project: the model has no normalize_weights of its own; name a projection")
    rows = [Row(name, type(m).__name__, (), "") for name, m in model.named_modules() if any(m is own for own in owners)]
    return Projection(Table("normalize_weights", rows), [], owners)


def _name(model: nn.Module, name: str, where: Where, tensor: str, options: dict[str, Any]) -> Projection:
    choice = catalog.choose("project", "name", name, PARAMETRIZATION).with_arguments(options)
    if not choice.card.entry.projects:
        known = [card.name for card in catalog.members(PARAMETRIZATION) if card.entry.projects]
        raise ValueError(f"project: {choice.card.name} is no projection; those are {', '.join(known)}")
    rows, maps, held = [], [], holders(model, tensor)
    last = _last(model, tensor) if where is None else None
    for layer, module, value in weights(model, tensor):
        map_or_why = _map(held, layer, module, value, choice, where, tensor, last)
        if isinstance(map_or_why, Parametrization):
            maps.append((module, tensor, map_or_why))
        rows.append(row_of(layer, module, value, map_or_why))
    table = Table(choice.card.name, rows)
    if not maps:
        raise ValueError(f"project: {choice.card.name} fits no layer that where={where!r} chooses:\n{table}")
    return Projection(table, maps, [])


def _last(model: nn.Module, tensor: str) -> nn.Module | None:
    return next((m for name, m, _ in reversed(list(weights(model, tensor))) if selects(None, name, m)), None)


def _map(
    held: Mapping[int, list[tuple[str, nn.Module]]], name: str, module: nn.Module, value: Tensor,
    choice: catalog.Choice, where: Where, tensor: str, last: nn.Module | None,
) -> Any:  # fmt: skip
    """Build the projection of a layer's weight, or return why the layer is left."""
    if not selects(where, name, module):
        return "a vector" if is_vector(value) else "not chosen"
    if module is last:
        return "the last layer"
    if tensor not in module._parameters:
        why: Any = "it is reparametrized"
    else:
        why = misfit(held, module, value) or options_for(choice, module, name, value)
    if isinstance(why, dict):
        try:
            result = choice.card.kind.create(choice.card, **why, device=value.device, dtype=value.dtype)
            why = result.refusal(value)
            if not why:
                result.right_inverse(value.detach())
                return result
        except ValueError as error:
            why = str(error)
    if named_outright(where, name):
        raise ValueError(f"project: {choice.card.name} does not fit {name!r}: {why}")
    return why
