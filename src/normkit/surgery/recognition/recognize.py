"""Norms found by what they compute: a module probed, explained by a method of the catalogue, and verified."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from normkit.norm import Norm
from normkit.surgery.recognition import functional, specimen
from normkit.surgery.recognition.match import Followed, Match, Recognized, again  # noqa: F401  pickles name it here
from normkit.surgery.recognition.own import by_class, is_special
from normkit.surgery.recognition.search import examine
from normkit.surgery.recognition.specimen import inputs_of
from normkit.surgery.recognition.wholes import examine_whole, has_norms_within, may_be_whole
from normkit.where import Where, selects

__all__ = ["Match", "Recognized", "recognize"]

LAYERS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase)
OTHERS = ("activation", "container", "dropout", "pooling", "padding", "linear", "conv", "sparse", "loss", "rnn")


@torch.inference_mode(False)
def recognize(module: nn.Module, example: Any = None, *, prove: bool = False) -> Match | Recognized | None:
    """Find norms by what they compute.

    A module of the size of a norm, which holds vectors and no matrices, gives a :class:`Match`, or None if it is no
    norm of the catalogue. So does a module that as a whole is a router of experts, mhc's head or a connection of mhc;
    the ``module`` of such a match returns the weights of reading, mixing and writing. Norms that adapt by a matrix of
    their own are wholes too. Of attention with a gate or a sink, ``module`` is the core. The norms within those are
    sites as well. A model gives the table of all its sites, and so does what is no norm but made of parts. Nothing is
    done to either: copies are probed. What was probed before, of the same source and configuration, is not probed
    again, nor are classes that are known; each match says how it was recognized.

    Args:
        module: a module, or a model.
        example: an input of the whole model: a tensor, a tuple of arguments or a dictionary of named ones; it tells the
            widths of norms that have no parameters.
        prove: probe all, whatever was probed before.

    >>> print(recognize(nn.LayerNorm(8, eps=1e-6)))
    LayerNorm: layernorm(dim=8, eps=1e-06)
    >>> recognize(nn.Softmax(-1)) is None
    True
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"recognize: module must be a torch.nn.Module, not {type(module).__name__}")
    whole = _whole(module)
    if whole is not None:
        return whole
    if not is_model(module):
        match = examine(module, prove=prove)
        if match or not any(module.children()):
            return match or None
    return table(module, example, prove)


def table(model: nn.Module, example: Any = None, prove: bool = False) -> Recognized:
    """Return the sites of a model, of whatever size it is."""
    return sized_table(model, {} if example is None else inputs_of(model, example), prove=prove, wholes=True)


@torch.inference_mode(False)
def sized_table(
    model: nn.Module,
    inputs: Mapping[str, tuple[int, ...]],
    where: Where = None,
    prove: bool = False,
    wholes: bool = False,
) -> Recognized:
    """Return the sites of a model, where the shapes of its modules' inputs are known; only ``where`` asked for.

    A norm without vectors has the width of its input's last axis or of axis 1. What is put in the place of norms is
    asked of norms alone; ``wholes`` are routers and what else is found as a whole.
    """
    named = model.named_modules(remove_duplicate=False)
    open_ = [name for name, part in named if all(t.numel() < 2 for t in specimen.tensors(part).values())]
    # one verdict holds for any number of samples
    sizes = {name: (min(inputs[name][0], 2), *inputs[name][1:]) for name in open_ if inputs.get(name)}
    return Recognized(_sites(model, sizes, where, prove, wholes))


def _is_own(module: nn.Module) -> bool:
    """Whether a module is a norm of the library that is not probed, for what it holds or takes."""
    return is_special(module) or (isinstance(module, Norm) and is_model(module))


def _whole(module: nn.Module) -> Match | None:
    return by_class(module) if _is_own(module) else examine_whole(module)


def is_model(module: nn.Module) -> bool:
    """Whether a module is made of several layers: it cannot be called, or it holds matrices."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return True
    tensors = specimen.tensors(module).values()
    wide = any(specimen.long_axes(t) > 1 for t in tensors)
    return any(_is_layer(part) for part in module.modules()) or (wide and bool(list(module.children())))


def _is_layer(part: nn.Module) -> bool:
    """Whether a module is one of torch's layers with matrices, which the quantized ones hold packed."""
    return isinstance(part, LAYERS) or hasattr(part, "_packed_params")


def _sites(
    model: nn.Module, sizes: Mapping[str, tuple[int, ...]], where: Where, prove: bool, wholes: bool
) -> dict[str, Match]:
    verdicts: dict[Any, Match] = {}
    findings: dict[str, Match] = {}
    no_wholes = set[Any]()
    recognized = set[type]()
    doubtful: dict[str, type] = {}  # classes of what is no norm as it is and has no name of one, but may have sisters

    def look_whole(module: nn.Module) -> Match | None:
        if not wholes or not (_is_own(module) or may_be_whole(module)):
            return None
        if (kind := specimen.same_kind(module)) in no_wholes:
            return None
        whole = _whole(module)
        if whole is None:
            no_wholes.add(kind)
        return whole

    def look(name: str, module: nn.Module) -> None:
        if isinstance(module, ParametrizationList):  # it makes a weight: a norm within is none of activations
            return
        whole = look_whole(module) if selects(where, name, module) else None
        if whole is not None:
            findings[name] = whole
            if not has_norms_within(whole):
                return
        elif selects(where, name, module) and _may_be(module):
            key = (specimen.same_kind(module), sizes.get(name), specimen.refusal(module))
            match = verdicts[key] = (
                again(verdicts[key], module) if key in verdicts else examine(module, sizes.get(name), prove)
            )
            findings[name] = match
            if match:
                recognized.add(type(module))
                return
            if not _looks_so(module):
                doubtful[name] = type(module)
        elif selects(where, name, module) and (functions := functional.norms(module)):
            why_not = f"its forward calls {' and '.join(functions)} itself, and only a module can be exchanged"
            findings[name] = Match(specimen.kind(module), why_not=why_not)
        for child, part in module.named_children():
            look(f"{name}.{child}" if name else child, part)

    look("", model)
    unlike = {
        name for name, kind in doubtful.items() if kind not in recognized or kind.__module__.startswith("torch.nn.")
    }
    return {name: match for name, match in findings.items() if name not in unlike}


def _may_be(module: nn.Module) -> bool:
    """Whether it is worth a look: something with a forward of its own that holds vectors at most."""
    home = type(module).__module__
    if home.startswith("torch.nn.modules.") and home.rpartition(".")[2] in OTHERS:
        return False
    if is_model(module) or inspect.getattr_static(type(module), "forward") is nn.Module.forward:
        return False
    needed, _ = specimen.further(module)
    return needed == 0 or (needed == 1 and any(True for _ in module.parameters()))


def _looks_so(module: nn.Module) -> bool:
    """Whether a reader would call it a norm, and none within it: to say why it was not recognized."""
    named = ("norm" in specimen.kind(part).lower() for part in module.modules())
    return next(named) and not any(named)
