"""The places of a model that are watched: blocks, layers, norms, functions, attention."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrize import is_parametrized

from normkit.families import Family
from normkit.norm import Norm
from normkit.parameters import is_scripted
from normkit.watching.signals.routing import is_router, selection_bias
from normkit.watching.signals.signal import BLOCK, FUNCTION, LAYER, NORMED, Place, Signal

LISTS = (nn.ModuleList, nn.Sequential)
NORM_NAME = re.compile(r"norm(?!al_)|^(DyT|Derf|DynamicTanh|DynamicErf)$", re.IGNORECASE)
ATTENTION_NAME = re.compile(r"attention|attn", re.IGNORECASE)
FUNCTION_NAME = re.compile(r"(re|ge|si|e|se|ce)lu|activation|sigmoid|tanh|swish|mish|softsign", re.IGNORECASE)

SIGNALS = Family("signal", "SIGNAL", "watching/signals")


class Site(NamedTuple):
    """A module that is watched: its name, what it is, what is read of it, and the axis of its channels."""

    name: str
    module: nn.Module
    what: str
    signals: tuple[Signal, ...]

    def axis(self, dims: int) -> int:
        """The axis of the channels of a tensor of so many axes."""
        module = self.module
        if isinstance(module, _ConvNd | _BatchNorm | _InstanceNorm | nn.GroupNorm):
            return 1
        if getattr(module, "channels_last", None) is False or type(module).__name__.endswith("2d"):
            return 1
        last = isinstance(module, nn.Linear | nn.LayerNorm | nn.RMSNorm | nn.Embedding) or dims != 4
        return -1 if last or self.what == LAYER else 1


def blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the model's layers in order of depth: what its lists hold, else its modules with a weight matrix.

    A list of lists is a list of stages: a ResNet gives its blocks. Lists inside a block are a part of it.

    >>> [name for name, _ in blocks(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)))]
    ['0', '2']
    """
    layers = list(_blocks("", model))
    if len(layers) > 1:
        return layers
    return [(name, m) for name, m in parts(model) if has_matrix(m)]


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return a model and all its modules with their names, but for the parametrizations that compute weights.

    >>> [name for name, _ in parts(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))]
    ['']
    """
    return model.named_modules(memo={m for part in model.modules() for m in _parametrizations(part)})


def children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the parts that a module is directly made of, with their names; parametrizations are none."""
    of_weights = _parametrizations(module)
    return [(name, m) for name, m in module.named_children() if m not in of_weights]


def _parametrizations(module: nn.Module) -> list[nn.Module]:
    return [m for name, m in module.named_children() if name == "parametrizations" and is_parametrized(module)]


def _blocks(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    named = [(f"{prefix}.{name}" if prefix else name, child) for name, child in children(module)]
    made_of_parts = [children(child) and not isinstance(child, LISTS) for _, child in named]
    if isinstance(module, LISTS) and named and all(made_of_parts):
        yield from named
    else:
        for name, child in named:
            yield from _blocks(name, child)


def has_matrix(module: nn.Module) -> bool:
    """Whether a module has a weight matrix of its own, be it one that a parametrization computes."""
    return any(p.dim() > 1 for p in _own_parameters(module))


def matrices(module: nn.Module) -> int:
    """How many modules with a weight matrix of their own there are in a module, itself included."""
    return sum(has_matrix(part) for _, part in parts(module))


def _own_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    below = (m.parameters() for m in _parametrizations(module))
    return itertools.chain(module.parameters(recurse=False), *below)


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm, or what stands for one: by its class, or the class's name where it has no parts."""
    return isinstance(module, Norm) or (is_alone(module) and bool(NORM_NAME.search(type(module).__name__)))


def is_alone(module: nn.Module) -> bool:
    """Whether a module has no parts."""
    return not children(module)


def is_function(module: nn.Module) -> bool:
    """Whether a module is an activation function."""
    simple = is_alone(module) and next(_own_parameters(module), None) is None
    return simple and bool(FUNCTION_NAME.search(type(module).__name__))


def sites(model: nn.Module) -> list[Site]:
    """Return the watched modules of a model in the order of their names; those of torch.jit take no hooks."""
    tops = {id(module) for _, module in blocks(model)}
    site_list = []
    for name, module in parts(model):
        if (hasattr(module, "_orig_mod") and id(module) not in tops) or is_scripted(module):
            continue
        block = id(module) in tops
        what = NORMED if is_norm(module) else LAYER if has_matrix(module) else FUNCTION if is_function(module) else ""
        routes = hasattr(module, "dropped") or is_router(module) or selection_bias(module) is not None
        if block or what or routes:
            site_list.append(Site(name, module, BLOCK if block else what, _signals(Place(module, what, block))))
    return site_list


def _signals(place: Place) -> tuple[Signal, ...]:
    signals = []
    for name, signal in SIGNALS.items():
        try:
            signals += [signal] * bool(signal.fits(place))
        except Exception as error:  # of another package's, which a training must outlive
            warnings.warn(f"signal {name} is not read of {type(place.module).__name__}: {error!r}", stacklevel=2)
    return tuple(signals)


def attentions(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the innermost modules that are called attention, else the blocks."""
    named = [(name, m) for name, m in parts(model) if attends(m) and not any(attends(p) for p in _inside(m))]
    return [(name, m) for name, m in named or blocks(model) if not is_scripted(m)]


def attends(module: nn.Module) -> bool:
    """Whether a module is called attention."""
    return bool(ATTENTION_NAME.search(type(module).__name__)) and not isinstance(module, LISTS)


def _inside(module: nn.Module) -> Iterator[nn.Module]:
    inside = module.modules()
    next(inside)
    return inside


def compiled_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Return the modules that run inside of torch.compile, where hooks are a part of the graph."""
    for module in model.modules():
        if hasattr(module, "_orig_mod"):
            yield from module.get_submodule("_orig_mod").modules()
        elif getattr(module, "_compiled_call_impl", None) is not None:
            yield from module.modules()
