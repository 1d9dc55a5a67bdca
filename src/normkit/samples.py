"""Inputs and modules that a card describes: what the tests, the benchmark and ``normkit show`` feed a method."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.catalog import Card


def build(card: Card, features: int = 8, **overrides: Any) -> nn.Module:
    """Build a smallest instance: the feature count, the card's example arguments, and ``overrides``."""
    args, kwargs = given(card, features, **overrides)
    return card.cls(*args, **kwargs)


def given(card: Card, features: int = 8, **overrides: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The arguments that build a smallest instance."""
    with torch.device(overrides.get("device") or torch.get_default_device()):
        arguments = {**example(card, features), **overrides}
    width = width_argument(card)
    if width is None or width.name in overrides:
        return (), arguments
    return ((), {width.name: features, **arguments}) if width.kind is width.KEYWORD_ONLY else ((features,), arguments)


def example(card: Card, features: int) -> dict[str, Any]:
    """The card's example arguments; a function among them is called with the feature count, and makes a module."""
    return {key: value(features) if callable(value) else value for key, value in card.example.items()}


def width_argument(card: Card) -> inspect.Parameter | None:
    """The argument that takes the feature count and must be given: the first one or a keyword ``dim``; else None."""
    takes = list(card.signature.parameters.values())
    wanted = [p for p in takes if p.name == "dim" and p.kind is p.KEYWORD_ONLY] + takes[:1]
    return next((p for p in wanted if p.default is p.empty and p.name not in card.example), None)


def sizes(features: int = 8, batch: int = 4) -> dict[str, int]:
    """Sizes of the named axes; a style or a map of its own size has ``Ls``, ``Hs Ws`` or ``h w``."""
    named = {"N": batch, "C": features, "B": batch, "T": 5, "L": 5, "H": 6, "W": 7, "F": 16, "S": 3, "K": 4, "P": 5}
    return {**named, "Ls": 7, "Hs": 4, "Ws": 5, "h": 9, "w": 5}


def shape_of(
    layout: str, named: dict[str, int], leading: tuple[int, ...] = (3,), trailing: tuple[int, ...] = (6, 7)
) -> tuple[int, ...]:
    """Turn a layout such as ``"N C *"`` into a shape; ``2C`` and ``C-1`` are understood.

    >>> shape_of("... C-1", {"C": 8}, leading=(2, 3))
    (2, 3, 7)
    """
    shape: list[int] = []
    for axis in layout.split():
        if axis == "...":
            shape += leading
        elif axis in ("*", "+"):
            shape += trailing
        else:
            times, name, less = re.fullmatch(r"(\d*)([A-Za-z_]*)(-\d+)?", axis).groups()  # type: ignore[union-attr]
            shape.append(int(times or 1) * (named[name] if name else 1) + int(less or 0))
    return tuple(shape)


def tensor_of(spec: str, named: dict[str, int], generator: torch.Generator | None = None, **options: Any) -> Tensor:
    """Draw a tensor for a layout with a kind, such as ``"N : index 3"``, ``"B T : bool"`` or ``"N : unit"``."""
    layout, _, kind = (part.strip() for part in spec.partition(":"))
    dtype = options.pop("dtype", torch.float32)
    shape = shape_of(layout, named, **options)
    if kind.startswith("index"):
        return torch.randint(int(kind.split()[1]), shape, generator=generator)
    if kind == "permutation":
        return torch.randperm(shape[0], generator=generator)
    if kind == "bool":
        return torch.rand(shape, generator=generator) < 0.3
    if kind == "mask":
        return (torch.rand(shape, generator=generator) < 0.6).to(dtype)
    if kind == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def inputs(
    card: Card,
    features: int = 8,
    batch: int = 4,
    *,
    optional: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    named: Mapping[str, int] | None = None,
    leading: tuple[int, ...] | None = None,
    trailing: tuple[int, ...] = (6, 7),
) -> list[Tensor]:
    """Draw the inputs of one call, the optional ones only with ``optional``; ``named`` gives sizes of named axes."""
    generator = torch.Generator().manual_seed(seed)
    examples = {k: v for k, v in card.example.items() if isinstance(v, int)}
    sized = {**sizes(features, batch), **examples, **(named or {})}
    wanted = [card.shape] + [spec for name, spec in card.inputs.items() if optional or not name.endswith("?")]
    leading = (batch,) if leading is None else leading
    return [tensor_of(w, sized, generator, dtype=dtype, leading=leading, trailing=trailing) for w in wanted]
