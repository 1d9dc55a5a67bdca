"""Steering a trained model: maps of activations behind its layers, learned together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.inference.lineas import LinEAS
from normkit.parameters import remove_after
from normkit.statistics import accurate


@contextlib.contextmanager
def steered(model: nn.Module, maps: Mapping[str, LinEAS]) -> Iterator[nn.Module]:
    """Put maps behind layers of a model, by the layers' names, while the block runs.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    >>> with steered(model, {"1": LinEAS(3)}) as other:
    ...     other(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """
    with _hook(model, {name: lambda y, own=own: own(y) for name, own in maps.items()}):
        yield model


def steering_loss(
    model: nn.Module, maps: Mapping[str, LinEAS], source: Any, target: Any, mask: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Return how far the steered activations of some samples are from the plain ones of others, over all layers.

    Both run through the whole model, so that a map sees what the maps before it did. Activations (N, ..., D) are
    averaged over all axes between the first and the last.

    Args:
        model: trained; it is called as ``model(source)``, or ``model(**source)`` with a mapping.
        maps: by names of layers.
        source: samples of what the model does, with the maps in place.
        target: as many of what it should do, without.
        mask: which tokens count, boolean (N, T) for source and target; None: all.
    """
    reference: dict[str, Tensor] = {}
    here: dict[str, Tensor] = {}
    masks = mask or (None, None)
    with torch.no_grad(), _hook(model, {name: _keeping(reference, name, masks[1]) for name in maps}):
        _call(model, target)
    with _hook(model, {name: _keeping(here, name, masks[0], own) for name, own in maps.items()}):
        _call(model, source)
    return torch.stack([own.wasserstein(here[name], reference[name]) for name, own in maps.items()]).sum()


def _call(model: nn.Module, given: Any) -> None:
    model(**given) if isinstance(given, Mapping) else model(given)


def _keeping(kept: dict[str, Tensor], name: str, mask: Tensor | None, own: LinEAS | None = None):
    """A map that keeps the mean of what it returns over the tokens."""

    def keep(y: Tensor) -> Tensor:
        y = y if own is None else own(y)
        tokens = accurate(y.reshape(len(y), -1, y.shape[-1]))
        counts = torch.ones_like(tokens[..., :1]) if mask is None else mask.to(tokens.dtype).unsqueeze(-1)
        kept[name] = (tokens * counts).sum(1) / counts.sum(1).clamp(min=1)
        return y

    return keep


@contextlib.contextmanager
def _hook(model: nn.Module, functions: Mapping[str, Any]) -> Iterator[None]:
    """Let functions change what layers return."""
    layers = dict(model.named_modules())
    missing = sorted(set(functions) - set(layers))
    if missing:
        raise ValueError(f"maps: the model has no layer {', '.join(missing)}")
    handles = [
        layers[name].register_forward_hook(lambda _, __, y, name=name: functions[name](_tensor(name, y)))
        for name in functions
    ]
    with remove_after(handles):
        yield


def _tensor(name: str, y: Any) -> Tensor:
    if not isinstance(y, Tensor):
        raise TypeError(f"maps: layer {name!r} must return a tensor, not {type(y).__name__}; name one inside it")
    return y
