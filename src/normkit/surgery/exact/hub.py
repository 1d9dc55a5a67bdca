"""The norms of a model by kernels of Hugging Face's hub: which layer of the package `normkit-norms` computes each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit.columns import aligned
from normkit.optional import library
from normkit.surgery.recognition.match import Match
from normkit.surgery.recognition.recognize import recognize

DEVICES = ("cpu", "cuda")
LAYERS: dict[str, tuple[str, Mapping[str, Any]]] = {  # of the package: the method, and the options of its dialect
    "RMSNorm": ("rmsnorm", {"cast": "early", "offset": 0.0}),
    "RMSNormLate": ("rmsnorm", {"cast": "late", "offset": 0.0}),
    "RMSNormZeroCentered": ("rmsnorm", {"cast": "late", "offset": 1.0}),
    "LayerNorm": ("layernorm", {}),
}
FREE = {"rmsnorm": ("dim", "eps", "affine"), "layernorm": ("dim", "eps", "affine", "bias")}  # read off the module


class HubLayer(NamedTuple):
    """A norm of a model, the layer that computes it, or why none does."""

    name: str
    module: str
    layer: str | None
    why_not: str | None = None


class Sites(list[HubLayer]):
    """The norms of a model, one a row."""

    def __str__(self) -> str:
        rows = [(site.name, site.module, site.layer or "-", site.why_not or "") for site in self]
        done = sum(site.layer is not None for site in self)
        return "\n".join([*aligned([("site", "class", "layer", "why not"), *rows]), f"{done} of {len(self)} norms"])


def layer_of(module: nn.Module, match: Match) -> tuple[str | None, str | None]:
    """Return the layer that computes what a module was proved to compute, or why there is none."""
    if match.name is None:
        return None, match.why_not or f"no norm of the catalogue: {match.kind}"
    options = _options(match)
    what = f"{match.name}({', '.join(f'{key}={value!r}' for key, value in options.items())})"
    fitting = [layer for layer, dialect in LAYERS.items() if (match.name, options) == (dialect[0], dict(dialect[1]))]
    if not fitting:
        return None, f"no layer of the package computes {what}"
    if match.behind:
        return None, f"behind the norm stand {', '.join(match.behind)}"
    held = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if held is None or held != match.kwargs.get("eps", held):
        return None, f"{what} has eps={match.kwargs.get('eps')}, which the module holds under no name that layers read"
    read = {name for name in ("weight", "bias") if getattr(module, name, None) is not None}
    if match.carried != {name: name for name in read}:
        return (
            None,
            f"{what} takes {', '.join(match.carried.values()) or 'no parameter'}, and layers read weight and bias",
        )
    return fitting[0], None


def _options(match: Match) -> dict[str, Any]:
    """The options of a match that make its dialect, with their defaults."""
    options = {key: value for key, value in match.kwargs.items() if key not in FREE.get(match.name or "", ())}
    if match.name == "rmsnorm":
        offset = float(options.get("offset", 0.0))
        cast = options.get("cast", "auto")
        options |= {"cast": ("late" if offset else "early") if cast == "auto" else cast, "offset": offset}
    return dict(sorted(options.items()))


@torch.inference_mode(False)
def layers(model: nn.Module, example: Any = None) -> Sites:
    """Return which layer computes each norm of a model, by what it is proved to compute, and not by its class's name.

    Args:
        model: whose norms are recognized.
        example: inputs of the model, for norms whose input cannot be drawn without.

    >>> print(layers(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))))
    site  class      layer      why not
    0     LayerNorm  LayerNorm
    1 of 1 norms
    """
    verdict = recognize(model, example)
    modules = dict(model.named_modules())
    matches: Mapping[str, Match] = {"": verdict} if isinstance(verdict, Match) else verdict or {}
    return Sites(
        HubLayer(name, type(modules[name]).__name__, *layer_of(modules[name], match)) for name, match in matches.items()
    )


@torch.inference_mode(False)
def kernelize(model: nn.Module, folder: str | Path, example: Any = None, *, compiled: bool = False) -> Sites:
    """Bind the hub package in ``folder`` to the norms of a model, by the package `kernels`, and return what was done.

    Norms whose dialect no layer has stay as they are, and are named with the reason. The model is changed in place, for
    inference where it is in evaluation mode and for training where it is not; its parameters stay where they are.

    Args:
        model: any model.
        folder: the package, as ``python tools/hub.py`` builds it.
        example: an input of the model, as :func:`normkit.recognize` takes it.
        compiled: the model is to be compiled by torch.
    """
    hub = library("kernels")
    mode = hub.Mode.TRAINING if model.training else hub.Mode.INFERENCE
    mode = mode | hub.Mode.TORCH_COMPILE if compiled else mode
    sites, modules = layers(model, example), dict(model.named_modules())
    for layer in dict.fromkeys(site.layer for site in sites if site.layer):
        targets = [modules[site.name] for site in sites if site.layer == layer]
        place = hub.LocalLayerRepository(Path(folder), layer_name=layer)
        with (
            hub.use_kernel_mapping({layer: dict.fromkeys(DEVICES, place)}, inherit_mapping=False),
            _extensible(hub, targets, layer),
        ):
            for module in targets:
                hub.kernelize(module, mode=mode, device=_device(module, model), use_fallback=False)
    return sites


@contextmanager
def _extensible(hub: Any, modules: list[nn.Module], layer: str) -> Iterator[None]:
    """Let classes be served by a layer for a while: the hub takes marks on classes, and one class has many dialects."""
    marks = ("kernel_layer_name", "kernel_condition")
    before = {cls: {mark: vars(cls)[mark] for mark in marks if mark in vars(cls)} for cls in map(type, modules)}
    try:
        for cls in before:
            hub.replace_kernel_forward_from_hub(cls, layer)
        yield
    finally:
        for cls, old in before.items():
            for mark in marks:
                delattr(cls, mark)
            for mark, value in old.items():
                setattr(cls, mark, value)


def _device(module: nn.Module, model: nn.Module) -> str:
    tensor = next(module.parameters(), next(model.parameters(), None))
    return "cpu" if tensor is None else tensor.device.type
