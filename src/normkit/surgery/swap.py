"""Norms of any model, found by type, and others put in their place."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from normkit import catalog
from normkit.norm import Norm
from normkit.surgery import fits

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
    """Return a function of the width that builds a norm of the catalogue for (B, T, C), or for (N, C, ...).

    The norm's own random numbers are drawn apart, so that those of the layers around it stay the same for every norm.
    """
    chosen = catalog.find(norm)
    way = fits.require(chosen, fits.Place(fits.IMAGES if channels_first else fits.STREAM))
    return functools.partial(fits.build, chosen, way)


def places(model: nn.Module) -> set[fits.Place]:
    """Return where a model's norms stand."""
    return {fits.Place(fits.IMAGES if site.channels_first else fits.STREAM) for site in norms(model)}


def swap(model: nn.Module, norm: str) -> int:
    """Put a fresh ``norm`` wherever the model has one; return how many. ``"original"`` leaves the model as it is."""
    sites = norms(model)
    if not sites:
        kinds = sorted({type(m).__name__ for m in model.modules() if not list(m.children())})
        raise ValueError(f"the model has no norm to replace; its layers are {', '.join(kinds)}")
    if norm == "original":
        return len(sites)
    for site in sites:
        old = model.get_submodule(site.name)
        new = maker(norm, site.channels_first)(site.width)
        model.set_submodule(site.name, _with_activation(new, old))
    return len(sites)


def _with_activation(new: nn.Module, old: nn.Module) -> nn.Module:
    """Keep the activation that timm's norms carry."""
    parts = [part for name in ("drop", "act") if isinstance(part := getattr(old, name, None), nn.Module)]
    return nn.Sequential(new, *parts) if parts else new
