"""What can come to stand at a site of a model: of each form the words that tell it, and how it is made from them.

A form is called by a word that its words always have, so that folders that were written as words alone are read too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations as class_of

from normkit import catalog
from normkit.norm import Norm
from normkit.statistics import accurate
from normkit.surgery.edits import bits, rewriting
from normkit.surgery.edits.layers import KINDS, PLAIN, Centred, ConstantPad, Laid, ThresholdNeuron, Zeros, is_conv1d
from normkit.surgery.edits.renaming import names_of, rename
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Followed
from normkit.threads import processor_by_default

SIZES = {  # what a layer calls the sizes of its weight's axes
    nn.Linear: ("out_features", "in_features"),
    nn.Embedding: ("num_embeddings", "embedding_dim"),
}
CONVOLUTION = ("out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")

Words = Mapping[str, Any]
State = Mapping[str, Tensor]


class Form(NamedTuple):
    """How a form is recognized by the old module and the new one (None: it is another), and made of the old one.

    Those without ``words`` are recognized before all others. The third argument of ``make`` are the weights to be
    loaded, by which sizes are known.
    """

    words: Callable[[nn.Module, nn.Module], Words | None] | None
    make: Callable[[Any, Words, State], nn.Module]


def words_of(old: nn.Module, new: nn.Module) -> tuple[str, Words] | None:
    """Return the form and the words of what took a module's place, None where it is the same as far as words go."""
    if type(new) is not type(old) and rewriting.words_of(type(new)):
        return "calls", call_words(type(new))
    if (few := bits.words_of(new)) is not None and few != bits.words_of(old):
        return "bits", few
    if _alike(old, new):
        return None if _sizes(old) == _sizes(new) else ("sizes", {"sizes": True})
    for name, form in FORMS.items():
        if form.words and (words := form.words(old, new)) is not None:
            return name, words
    if unsaved := sorted(old._non_persistent_buffers_set & new._parameters.keys()):
        raise ValueError(
            f"has a parameter {unsaved[0]} by now, before a buffer that it does not save, which cannot be written in "
            "words; register the buffer with persistent=True"
        )
    raise ValueError(f"has become a {type(new).__name__}, which cannot be written in words")


def _alike(old: nn.Module, new: nn.Module) -> bool:
    """Whether two modules are of one class, with children and tensors of the same names, and were built alike."""
    if class_of(old) is not class_of(new) or [*children(old)] != [*children(new)]:
        return False
    if old._parameters.keys() != new._parameters.keys() or old._buffers.keys() != new._buffers.keys():
        return False
    if isinstance(old, Norm):
        return repr(old.arguments) == repr(new.arguments)
    return not isinstance(old, Laid) or old.way == new.way


def children(module: nn.Module) -> dict[str, nn.Module]:
    """The parts of a module by every name that it holds each by."""
    return {name: part for name, part in module._modules.items() if part is not None}


def _sizes(module: nn.Module) -> dict[str, torch.Size]:
    buffers, unsaved = module.named_buffers(recurse=False), module._non_persistent_buffers_set
    saved = {name: buffer.shape for name, buffer in buffers if name not in unsaved}
    return saved | {name: p.shape for name, p in module.named_parameters(recurse=False)}


def _like(new: Any, old: nn.Module) -> Any:
    """Give what is made the type and the place of what was there."""
    own = next(iter(specimen.tensors(old).values()), None)
    return new if own is None else new.to(device=own.device, dtype=own.dtype)


def _norm_words(old: nn.Module, new: nn.Module) -> Words | None:
    inner = new.norm if isinstance(new, Followed) else new
    norm = inner.norm if isinstance(inner, Laid) else inner
    if not isinstance(norm, Norm):
        return None
    layers = list(new.layers) if isinstance(new, Followed) else []
    return norm_words(
        norm,
        way=inner.way if isinstance(inner, Laid) else PLAIN,
        behind=[_name(old, layer) for layer in layers],
        names=names_of(norm),
    )


def norm_words(norm: Norm, way: str, **more: Any) -> dict[str, Any]:
    """Return the words of a norm of the catalogue, how its input is laid out, and what else is not empty.

    behind: the old module's own layers that act on what it gives; carried: its tensors that take the numbers of the old
    one's, by name; added: those that take them with a number added; spread: a running deviation made of a variance, or
    the reverse, and the eps that is in it; names: what its tensors are saved as.
    """
    more = {name: value for name, value in {"way": way if way != PLAIN else "", **more}.items() if value}
    return {"norm": norm.card.name, "arguments": dict(norm.arguments), **more}


@torch.no_grad()
def _norm(old: nn.Module, words: Words, state: State) -> nn.Module:
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in words["arguments"].items()}
    # its random numbers are drawn apart from those of the layers around it
    with torch.random.fork_rng(devices=[]), processor_by_default():
        norm = catalog.find(words["norm"]).create(**arguments)
    norm = _like(norm, old)
    if words.get("names"):
        rename(norm, words["names"])
    specimen.carry(specimen.tensors(norm), specimen.tensors(old), words.get("carried", {}))
    _keep_parameters(norm, old, words.get("carried", {}))
    for name, (source, more) in words.get("added", {}).items():
        own, held = norm.get_parameter(name), specimen.tensors(old)[source]
        own.copy_(held.reshape(own.shape) + more)
        own.requires_grad_(held.requires_grad)
    for name, (source, eps) in words.get("spread", {}).items():
        was = accurate(specimen.tensors(old)[source])
        root = name == "running_std"
        norm.get_buffer(name).copy_((was + eps).sqrt() if root else (was.square() - eps).clamp(min=0))
    new = Laid(norm, words["way"]) if words.get("way") else norm
    layers = [old.get_submodule(name) for name in words.get("behind", ())]
    return Followed(new, layers) if layers else new


def _keep_parameters(norm: nn.Module, old: nn.Module, carried: Mapping[str, str]) -> None:
    """Let a norm hold the carried parameters themselves, which an optimizer or another norm may hold too.

    One of another shape or type is frozen as the old one was, as a buffer is; what has no old one is frozen where all
    of those are.
    """
    held = dict(old.named_parameters())
    frozen = bool(held) and not any(parameter.requires_grad for parameter in held.values())
    for name, own in list(norm.named_parameters()):
        source = held.get(carried.get(name, ""))
        if source is not None and (source.shape, source.dtype) == (own.shape, own.dtype):
            setattr(*specimen.locate(norm, name), source)
        elif not source.requires_grad if source is not None else frozen or name in carried:
            own.requires_grad_(False)


def _neuron_words(old: nn.Module, new: nn.Module) -> Words | None:
    return {"thresholds": len(new.threshold), "decay": new.decay} if isinstance(new, ThresholdNeuron) else None


def _neuron(old: nn.Module, words: Words, state: State) -> nn.Module:
    return _like(ThresholdNeuron(words["thresholds"], words["decay"]), old)


def _plain_words(old: nn.Module, new: Any) -> Words | None:
    """What a plain layer is built from."""
    if type(new) not in KINDS:
        return None
    names: tuple[str, ...] = ("out_features",) if isinstance(new, nn.Linear) else CONVOLUTION
    names += ("output_padding",) if getattr(new, "transposed", False) else ()
    wide = new.in_features if isinstance(new, nn.Linear) else new.in_channels
    own = {name: getattr(new, name) for name in names}
    return {"plain": type(new).__name__, "arguments": {"in": wide, **own, "bias": new.bias is not None}}


def _plain(old: nn.Module, words: Words, state: State) -> nn.Module:
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in words["arguments"].items()}
    wide = arguments.pop("in")
    return _like(next(kind for kind in KINDS if kind.__name__ == words["plain"])(wide, **arguments), old)


def _centred_words(old: nn.Module, new: nn.Module) -> Words | None:
    return {"centred": True, "shorter": new.shorter} if isinstance(new, Centred) else None


def _zeros_words(old: nn.Module, new: nn.Module) -> Words | None:
    return {"zeros": True} if isinstance(new, Zeros) else None


def _padded_words(old: nn.Module, new: nn.Module) -> Words | None:
    """A convolution without padding behind one that pads each channel with a value of its own."""
    parts: list[Any] = list(new.children()) if isinstance(new, nn.Sequential) else []
    if not parts or not isinstance(parts[0], ConstantPad):
        return None
    pad, layer = parts
    same = type(layer) is type(old) and layer._parameters.keys() == old._parameters.keys()
    words = {"padding": pad.padding, "channels": len(pad.values)}
    return words if same else {**words, "layer": _plain_words(old, layer)}


def _padded(old: Any, words: Words, state: State) -> nn.Module:
    if "layer" in words:  # it computed its weight anew at every call
        old = _plain(old, words["layer"], state)
    old.padding, old._reversed_padding_repeated_twice = (0,) * (old.weight.dim() - 2), [0] * len(words["padding"])
    _sized(old, {}, {key.removeprefix("1."): t for key, t in state.items()})
    return nn.Sequential(_like(ConstantPad(words["padding"], torch.zeros(words["channels"])), old), old)


def _normed_words(old: nn.Module, new: nn.Module) -> Words | None:
    """The old module, and a norm of the catalogue behind it."""
    pair = list(new.children()) if type(new) is nn.Sequential else []
    if len(pair) != 2 or not _alike(old, pair[0]) or not isinstance(pair[1], Norm | Laid):
        return None
    return {"normed": _norm_words(old, pair[1])}


def _normed(old: nn.Module, words: Words, state: State) -> nn.Module:
    layer = _sized(old, {}, {key.removeprefix("0."): t for key, t in state.items() if key.startswith("0.")})
    return nn.Sequential(layer, _norm(old, words["normed"], {}))


def _own_words(old: nn.Module, new: nn.Module) -> Words | None:
    """The old module's own layers that are left, none, one or several."""
    if isinstance(new, nn.Identity):
        return {"behind": []}
    if any(type(layer) is type(new) for layer in old.children()):
        return {"behind": [_name(old, new)]}
    several = list(new.children()) if type(new) is nn.Sequential else []
    return {"behind": [_name(old, layer) for layer in several]} if several else None


def _own(old: nn.Module, words: Words, state: State) -> nn.Module:
    layers = [old.get_submodule(name) for name in words["behind"]]
    return layers[0] if len(layers) == 1 else nn.Sequential(*layers) if layers else nn.Identity()


def _name(old: nn.Module, layer: nn.Module) -> str:
    children = list(old.named_children())
    same = [name for name, child in children if child is layer] or [n for n, c in children if type(c) is type(layer)]
    if not same:
        raise ValueError(f"a {type(layer).__name__} is new in a {type(old).__name__}, which cannot be written in words")
    return same[0]


def _sized(layer: Any, words: Words, state: State) -> nn.Module:
    """Give a layer parameters of the sizes that will be loaded."""
    like = next(layer.parameters(recurse=False), torch.zeros(()))
    for name, own in layer._parameters.items():
        if name in state and (own is None or own.shape != state[name].shape):
            tensor = torch.empty(state[name].shape, device=like.device, dtype=state[name].dtype)
            layer._parameters[name] = nn.Parameter(tensor, (like if own is None else own).requires_grad)
    for name, own in layer._buffers.items():
        if name in state and own is not None and own.shape != state[name].shape:
            layer._buffers[name] = own.new_empty(state[name].shape)
    if "bias" in layer._parameters and "weight" in state and "bias" not in state:
        layer._parameters["bias"] = None
    _take_sizes(layer)
    return layer


def _take_sizes(layer: Any) -> None:
    """Let a layer's sizes be those of its weight."""
    turned = ("nx", "nf") if is_conv1d(layer) else ()
    sizes = next((names for kind, names in SIZES.items() if isinstance(layer, kind)), turned)
    for name, size in zip(sizes, layer.weight.shape, strict=True) if sizes else ():
        setattr(layer, name, size)
    if hasattr(layer, "out_channels") and not getattr(layer, "transposed", False):
        layer.out_channels = layer.weight.shape[0]


def call_words(own: type[nn.Module]) -> dict[str, Any]:
    """Return the words of a class whose forward was written anew."""
    return {"calls": [list(word) for word in rewriting.words_of(own)]}


def _rewritten(old: nn.Module, words: Words, state: State) -> nn.Module:
    old.__class__ = rewriting.derived(type(old), tuple(tuple(word) for word in words["calls"]))
    return old


FORMS: dict[str, Form] = {
    "norm": Form(_norm_words, _norm),
    "centred": Form(_centred_words, lambda old, words, state: Centred(old, words["shorter"])),
    "zeros": Form(_zeros_words, lambda old, words, state: Zeros()),
    "thresholds": Form(_neuron_words, _neuron),
    "plain": Form(_plain_words, _plain),
    "padding": Form(_padded_words, _padded),
    "normed": Form(_normed_words, _normed),
    "behind": Form(_own_words, _own),
    "sizes": Form(None, _sized),
    "calls": Form(None, _rewritten),
    "bits": Form(None, bits.layer),
    "alone": Form(None, lambda old, words, state: copy.deepcopy(old)),
}
