"""Norms of any model, found by type, and others put in their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.kinds import NORM
from normkit.norm import Norm
from normkit.residual.norms import fits_a_stream

CHANNELS_FIRST = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)
LIKE_A_NORM = re.compile(r"(layer|rms|scale)_?norm(bias)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Site:
    """Where a model has a norm: its module's name, its width, and whether channels are the second axis or the last."""

    name: str
    width: int
    channels_first: bool


class OverChannels(nn.Module):
    """Apply a norm over the last axis to the channels of an image, (N, C, ...)."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """Move the channels to the end and back."""
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


def norms(model: nn.Module) -> list[Site]:
    """Find a model's norms by their types: torch's, normkit's, and classes called so that hold one weight vector."""
    return [site for name, module in model.named_modules() if (site := _site(name, module)) is not None]


def _site(name: str, module: nn.Module) -> Site | None:
    if isinstance(module, CHANNELS_FIRST):
        width = module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features
        return Site(name, int(width), True)
    if isinstance(module, Norm):
        shape = module.card.shape
        return Site(name, _width(module), shape.image) if shape.image or shape == "... C" else None
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        # timm's LayerNorm2d is a LayerNorm that moves the channels itself
        first = type(module).__name__.endswith("2d")
        return Site(name, module.normalized_shape[0], first) if len(module.normalized_shape) == 1 else None
    weight = getattr(module, "weight", None)
    if LIKE_A_NORM.search(type(module).__name__) and isinstance(weight, Tensor) and weight.dim() == 1:
        return Site(name, weight.numel(), False)
    return None


def _width(norm: Norm) -> int:
    return next(value for value in norm.arguments.values() if isinstance(value, int))


def maker(norm: str, channels_first: bool = False) -> Callable[[int], nn.Module]:
    """Return a function of the width that builds a norm of the catalogue for (..., C), or for (N, C, ...).

    The norm's own random numbers are drawn apart, so that those of the layers around it stay the same for every norm.
    """
    chosen = catalog.find(norm)
    wrap = channels_first and fits_a_stream(chosen.card)
    _require_fit(chosen, channels_first)

    def make(width: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            made = chosen.create(width)
        return OverChannels(made) if wrap else made

    return make


def _require_fit(chosen: catalog.Choice, channels_first: bool) -> None:
    card = chosen.card
    if fits(card, channels_first, tuple(chosen.arguments)):
        return
    usable = [name for name in catalog.methods() if fits(catalog.card(name), channels_first)]
    place = "images, (N, C, H, W)" if channels_first else "a stream of vectors, (..., C)"
    wants = [p.name for p in _required(card) if p.name not in chosen.arguments]
    reason = f"it needs {card.name}:{wants[0]}=..." if wants else f"its input is {card.shape}"
    raise ValueError(f"norm {card.name!r} does not fit {place}: {reason}; those that do: {', '.join(usable)}")


def fits(card: catalog.Card, channels_first: bool, given: tuple[str, ...] = ()) -> bool:
    """Whether a method takes such inputs and nothing else, and is built from its width and the arguments ``given``."""
    if card.kind is not NORM or not (card.shape == "... C" or (channels_first and card.shape.image)):
        return False
    alone = all(layout.optional for layout in card.inputs.values())
    return alone and all(p.name in given for p in _required(card))


def _required(card: catalog.Card) -> list[Any]:
    _, *others = card.signature.parameters.values()
    return [p for p in others if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def swap(model: nn.Module, norm: str) -> int:
    """Put a fresh ``norm`` wherever the model has one; return how many. ``"original"`` leaves the model as it is."""
    sites = norms(model)
    if not sites:
        kinds = sorted({type(m).__name__ for m in model.modules() if not list(m.children())})
        raise ValueError(f"the model has no norm to replace; its layers are {', '.join(kinds)}")
    if norm == "original":
        return len(sites)
    for site in sites:
        parent, _, child = site.name.rpartition(".")
        old = model.get_submodule(site.name)
        new = maker(norm, site.channels_first)(site.width)
        setattr(model.get_submodule(parent), child, _with_activation(new, old))
    return len(sites)


def _with_activation(new: nn.Module, old: nn.Module) -> nn.Module:
    """Keep the activation that timm's norms carry."""
    parts = [part for name in ("drop", "act") if isinstance(part := getattr(old, name, None), nn.Module)]
    return nn.Sequential(new, *parts) if parts else new
