"""Reparametrizations of whole models: put on, taken off, and read from torch's own checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normkit import catalog
from normkit.catalog import Choice
from normkit.kinds import PARAMETRIZATION, Parametrization
from normkit.parameters import buffers_apart, mode, own_parameter, require_whole
from normkit.parameters import holders as owners_of
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
    without_weight,
)
from normkit.weight.weight_norm import WeightNorm
from normkit.where import require_known

Target = tuple[str, nn.Module, Parametrization]


@torch.inference_mode(False)
def apply(model: nn.Module, name: str, *, where: Where = None, tensor: str = "weight", **options: Any) -> Table:
    """Put a reparametrization on every fitting layer of a model; return what was done, and what was left and why.

    Each is a parametrization of ``torch.nn.utils.parametrize``: it composes with others, is saved with the model, can
    be compiled and copied, and :func:`bake` takes it off. A frozen layer stays frozen. Nothing is done if anything
    fails.

    Args:
        model: the model, or one layer.
        name: a reparametrization of the catalogue, with arguments if need be: ``"weight-conditioning:mode=column"``.
        where: which layers: a type or several, a name or a wildcard pattern or several, or a function of name and
            layer. None: linear layers and convolutions.
        tensor: the name of what is reparametrized.
        **options: arguments of the reparametrization; one that is a function is called with the layer's name and
            weight. ``dim`` is 1 for transposed convolutions unless it is given.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.LayerNorm(2))
    >>> print(apply(model, "weight-norm", where="2"))
    0  Linear     8x4  not chosen
    2  Linear     2x8  weight-norm
    3  LayerNorm  2    a vector
    weight-norm: 1 of 3 layers
    """
    check_model("apply", model)
    require_whole("apply", model)
    require_known("apply", where, model)
    choice = catalog.choose("apply", "name", name, PARAMETRIZATION).with_arguments(options)
    rows, plans, held = [], [], holders(model, tensor)
    for layer, module, value in weights(model, tensor):
        map_or_why = plan(held, layer, module, value, choice, where, tensor)
        if isinstance(map_or_why, Parametrization):
            plans.append((layer, module, map_or_why))
        rows.append(row_of(layer, module, value, map_or_why))
    table = Table(choice.card.name, [*rows, *(without_weight(model) if tensor == "weight" else ())])
    if not plans:
        raise ValueError(f"apply: {choice.card.name} fits no layer that where={where!r} chooses:\n{table}")
    _register(plans, tensor)
    return table


def check_model(owner: str, model: Any) -> None:
    """Require a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{owner}: model must be a torch.nn.Module, not {type(model).__name__}")


def plan(
    held: Mapping[int, list[tuple[str, nn.Module]]], name: str, module: nn.Module, value: Tensor, choice: Choice,
    where: Where, tensor: str,
) -> Any:  # fmt: skip
    """Build what is put on a layer, or return why the layer is left; one named outright must fit."""
    if not selects(where, name, module):
        return "a vector" if is_vector(value) else "not chosen"
    _refuse_twice(name, module, choice, tensor)
    why = misfit(held, module, value) or _build(name, module, value, choice)
    if isinstance(why, str) and named_outright(where, name):
        raise ValueError(f"apply: {choice.card.name} does not fit {name!r}: {why}")
    return why


def _refuse_twice(name: str, module: nn.Module, choice: Choice, tensor: str) -> None:
    if any(isinstance(own, choice.card.entry) for own in on(module, tensor)):
        raise ValueError(f"apply: {name!r} has {choice.card.name} already; bake the model first, or choose others")


def on(module: nn.Module, tensor: str = "weight") -> list[nn.Module]:
    """The parametrizations that a layer has."""
    return list(module.parametrizations[tensor]) if parametrize.is_parametrized(module, tensor) else []  # type: ignore


def _build(name: str, module: nn.Module, value: Tensor, choice: Choice) -> Parametrization | str:
    options = options_for(choice, module, name, value)
    if isinstance(options, str):
        return options
    try:
        result = choice.card.kind.create(choice.card, **options, device=value.device, dtype=value.dtype)
    except ValueError as error:
        return str(error).partition("\n")[0]
    return result.refusal(value) or result.train(module.training)


def _register(plans: list[Target], tensor: str) -> None:
    """Put all on, or none."""
    with contextlib.ExitStack() as undo:
        for _, module, result in plans:
            parameter = own_parameter(module, tensor)
            # in place, torch lets a parameter have another storage: what has its own is untouched
            value = None if parameter is None else parameter.detach()
            undo.callback(_take_back, module, tensor, len(on(module, tensor)), parameter, value)
            with buffers_apart(module):
                _put_on(module, tensor, result)
            undo.callback(module.register_load_state_dict_pre_hook(read_torchs_weight_norm).remove)
        undo.pop_all()


def _put_on(module: nn.Module, tensor: str, result: Parametrization) -> None:
    value, learned = None, [getattr(module, tensor)]
    if parametrize.is_parametrized(module, tensor):
        value, learned = learned[0].detach(), module.parametrizations[tensor].parameters()  # type: ignore
    if not any(p.requires_grad for p in learned) and "reached" not in result.card.exempt:
        result.requires_grad_(False)  # a frozen layer stays so; what never moves the weight is learned beside it
    parametrize.register_parametrization(module, tensor, result)
    if value is not None:  # torch begins with what it gives, not with what it takes
        result.right_inverse(value)


@torch.no_grad()
def _take_back(module: Any, tensor: str, maps: int, parameter: nn.Parameter | None, value: Any) -> None:
    """Leave a layer so many maps, or the parameter and its value that it had."""
    if parameter is None:
        del module.parametrizations[tensor][maps:]
        return
    parameter.set_(value)
    if parametrize.is_parametrized(module, tensor):
        parametrize.remove_parametrizations(module, tensor, leave_parametrized=False)
        module._parameters[tensor] = parameter


def bake(model: nn.Module) -> Table:
    """Take every parametrization off a model, and leave the weights that it computes in evaluation, to the last bit.

    A parameter stays the object that it was, but for one that other layers hold too: those keep it.

    >>> model = nn.Linear(4, 8)
    >>> print(apply(model, "spectral-norm"))
    (model)  Linear  8x4  spectral-norm
    spectral-norm: 1 of 1 layers
    >>> bake(model).done, list(model.state_dict())
    ([''], ['bias', 'weight'])
    """
    check_model("bake", model)
    rows = []
    for name, values in take_all_off(model).items():
        kind = type(model.get_submodule(name)).__name__
        rows += [Row(name, kind, tuple(value.shape), "") for value in values.values()]
    return Table("baked", rows)


def take_all_off(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Do what :func:`bake` does, and return what each layer is left by name."""
    layers = {name: module for name, module in model.named_modules() if parametrize.is_parametrized(module)}
    values = {name: _computed(module) for name, module in layers.items()}  # of all, before any is changed
    shared = {key for key, owners in owners_of(model).items() if len(owners) > 1}
    for name, module in layers.items():
        _take_off(module, values[name], shared)
    return values


@torch.no_grad()
def _computed(layer: Any) -> dict[str, Tensor]:
    """Copies of what a layer's parametrizations compute in evaluation, by name."""
    with mode(layer, False):
        return {name: getattr(layer, name).clone() for name in layer.parametrizations}


@torch.no_grad()
def _take_off(layer: Any, values: Mapping[str, Tensor], shared: set[int]) -> None:
    """Leave a layer these values of :func:`_computed`; a parameter that is not ``shared`` stays the object that it was.

    ``torch.nn.utils.parametrize`` would take the parametrizations off all copies of the layer, which share a class.
    """
    lists = layer.parametrizations
    layer._modules = {name: part for name, part in layer._modules.items() if part is not lists}
    layer.__class__ = type(layer).__bases__[0]
    for name, value in values.items():
        originals = list(lists[name]._parameters.values()) or list(lists[name]._buffers.values())
        if len(originals) == 1 and originals[0].dtype == value.dtype and id(originals[0]) not in shared:
            value = originals[0].set_(value)
        elif lists[name]._parameters:
            value = nn.Parameter(value, any(p.requires_grad for p in originals))
        if isinstance(value, nn.Parameter):
            layer.register_parameter(name, value)
        else:
            layer.register_buffer(name, value)


def read_torchs_weight_norm(module: Any, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Read what torch's weight norm saved, the old one or the new one; a hook of ``load_state_dict``.

    A layer that has torch's weight norm is left alone.
    """
    weight = module.parametrizations.weight if parametrize.is_parametrized(module, "weight") else None
    if hasattr(module, "weight_g") or hasattr(weight, "original0"):
        return
    for keys in (("weight_g", "weight_v"), ("parametrizations.weight.original0", "parametrizations.weight.original1")):
        length, raw = (prefix + key for key in keys)
        if length not in state or raw not in state:
            continue
        g, v = state.pop(length), state.pop(raw)
        own = next((p for p in on(module) if isinstance(p, WeightNorm)), None)
        if own is None:
            axes = [axis for axis, size in enumerate(g.shape) if size == 1]
            v = v * (g / torch.linalg.vector_norm(v, dim=axes or None, keepdim=bool(axes)))
        else:
            state[f"{prefix}parametrizations.weight.{on(module).index(own)}.g"] = g.reshape(own.g.shape)
        state[prefix + ("weight" if weight is None else "parametrizations.weight.original")] = v
