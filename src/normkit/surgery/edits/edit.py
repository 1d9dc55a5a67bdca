"""An edit of a model is a value: where, of what form, and in which words; it is applied, written, and applied again.

A model carries the edits that were made of it, so that it can be saved as what it was and what was done to it.

>>> model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
>>> edit = Edit("1", "norm", {"norm": "rmsnorm", "arguments": {"dim": 4}, "carried": {"weight": "weight"}})
>>> Edit.from_dict(edit.to_dict()).apply(model)[1]  # doctest: +ELLIPSIS
RMSNorm(4, eps=1e-06, p=1.0, affine=True, bias=False, offset=0.0, ...)
>>> edits_in(model) == [edit]
True
"""

from __future__ import annotations

import copy
import json
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from normkit.norm import Norm
from normkit.surgery.edits import bits, forms
from normkit.surgery.edits.guarding import (  # noqa: F401  pickles name the first two here
    _save_adapters,
    _save_pretrained,
    guard,
    is_changed,
)
from normkit.surgery.recognition.match import is_layer_norm
from normkit.surgery.recognition.specimen import locate

SAME = ("fuse", "recognize")  # what leaves a model one that its library may open as what it was
RECORD = "_normkit_edits"  # where a model carries its edits


@dataclass(frozen=True)
class Edit:
    """What comes to stand at a site: a form and its words, plain values, from which it is made of what stands there.

    Numbers are what ``words`` carry over, such as a norm's gain and shift; all others come with the weights.
    """

    site: str
    kind: str
    words: Mapping[str, Any] = field(default_factory=dict)

    def make(self, old: nn.Module, state: Mapping[str, Tensor] | None = None) -> nn.Module:
        """Return what takes a module's place; of some forms it is the module itself, changed.

        state: the weights that will be loaded into it, for forms whose words are sizes alone.
        """
        new = forms.FORMS[self.kind].make(old, self.words, state or {})
        return new.train(old.training) if new is not old else new

    def apply(self, model: nn.Module) -> nn.Module:
        """Put it into a model, in all places that hold the same module; return the model, or what took its place."""
        return replay(model, [self])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, such as JSON holds."""
        try:
            words = json.loads(json.dumps(dict(self.words)))
        except TypeError as error:
            raise ValueError(f"{self.site or 'the model'} cannot be written in words: {error}") from error
        return {"site": self.site, "kind": self.kind, "words": words}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Edit:
        """Read what :meth:`to_dict` gave."""
        return cls(values["site"], values["kind"], values["words"])


def of_words(site: str, words: Mapping[str, Any]) -> Edit:
    """Return the edit that words alone tell, as folders were written before edits had forms."""
    return Edit(site, next(kind for kind in forms.FORMS if kind in words), words)


def replay(
    model: nn.Module, edits: Sequence[Edit], state: Mapping[str, Tensor] | None = None, same: bool = False
) -> nn.Module:
    """Apply edits one after another to what a model was, and let it carry them; return it, or what took its place.

    state: the weights that will be loaded into the whole. A module that is held in several places is changed in all but
    those that another edit names; ``alone`` is what an edit does to one place. same: the library of the model may open
    it as what it was.
    """
    changed = []
    named = {edit.site for edit in edits if edit.kind != "alone"}
    held, state = all_places(model), dict(sorted((state or {}).items()))
    keys = list(state)
    for edit in edits:
        old = model.get_submodule(edit.site)
        others = () if edit.kind == "alone" else held.get(old, ())
        spots = [edit.site, *(place for place in others if place not in named and place != edit.site)]
        before = list(old.named_modules(prefix=edit.site, remove_duplicate=False))
        marked = not same or is_changed(old)
        new = edit.make(old, _under(edit.site, state, keys))
        changed += [new] if marked else []
        model = put(model, spots, new)
        if held.get(old) == spots == [edit.site]:
            _move(held, edit.site, before, new)
        else:  # it is in several places
            held = all_places(model)
    call_norms(model)
    note(model, edits)
    guard(changed)
    return model


def _under(site: str, state: Mapping[str, Tensor], keys: Sequence[str]) -> dict[str, Tensor]:
    """What a state, whose keys are sorted, holds of one site."""
    if not site:
        return dict(state)
    own = keys[bisect_left(keys, f"{site}.") : bisect_left(keys, f"{site}/")]  # a slash comes next after a dot
    return {key.removeprefix(f"{site}."): state[key] for key in own}


def _move(held: dict[nn.Module, list[str]], site: str, before: Iterable[tuple[str, nn.Module]], new: nn.Module) -> None:
    """Keep the places of all modules right once one, in the one place that held the old one, is new."""
    for name, part in before:
        held[part].remove(name)
    for name, part in new.named_modules(prefix=site, remove_duplicate=False):
        held.setdefault(part, []).append(name)


def put(model: nn.Module, spots: Iterable[str], new: nn.Module) -> nn.Module:
    """Put a module into some places of a model; return the model, or the module where it takes the model's own."""
    for place in spots:
        if not place:
            return new
        model.set_submodule(place, new)
        _bind(model.get_submodule(place.rpartition(".")[0]))
    return model


def _bind(holder: Any) -> None:
    """Let what ``torch.compile`` gave call the module that it holds now, and not the one that it was made of."""
    if _is_compiled(holder):
        holder._initialize()


def _is_compiled(module: Any) -> bool:
    frames = sys.modules.get("torch._dynamo.eval_frame")  # without it nothing was compiled
    return frames is not None and isinstance(module, frames.OptimizedModule)


def inside(model: Any) -> tuple[str, Any]:
    """Return the name and the module of the model in what ``torch.compile`` gave; of another, no name and itself."""
    names = []
    while _is_compiled(model):
        names.append("_orig_mod")
        model = model._orig_mod
    return ".".join(names), model


def note(model: nn.Module, edits: Iterable[Edit]) -> None:
    """Let a model carry edits, behind those that it carries already; one that is compiled, in the model inside."""
    path, own = inside(model)
    if edits := tuple(replace(edit, site=edit.site.removeprefix(path).removeprefix(".")) for edit in edits):
        vars(own)[RECORD] = vars(own).get(RECORD, ()) + edits


def edits_in(model: nn.Module) -> list[Edit]:
    """Return the edits that a model carries, and its parts."""
    return [
        Edit(".".join(filter(None, (name, edit.site))), edit.kind, edit.words)
        for name, part in model.named_modules()
        for edit in vars(part).get(RECORD, ())
    ]


def edits_since(old: nn.Module, new: nn.Module) -> list[Edit]:
    """Return the edits that a changed model carries, and the model that it was made of did not."""
    path, own = inside(new)
    before, record = vars(inside(old)[1]).get(RECORD, ()), vars(own).get(RECORD, ())
    since = record[len(before) :] if record[: len(before)] == before else record
    return [replace(edit, site=".".join(filter(None, (path, edit.site)))) for edit in since]


def load_numbers(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give a model its numbers; what was tied is two tensors from here on, unless :func:`tie` ties it again.

    Weights of few bits are in their parts in a state, and in place already.
    """
    held = {f"{name}.weight" if name else "weight" for name, part in model.named_modules() if bits.words_of(part)}
    _untie(model, held)
    own = {name: t for name, t in state.items() if name not in held and name.rpartition(".")[0] not in held}
    try:
        missing, unexpected = model.load_state_dict(own, strict=False)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit the model: {str(error).splitlines()[-1].strip()}") from error
    if unexpected or set(missing) - held:
        raise ValueError(f"{[*unexpected, *sorted(set(missing) - held)][0]} is in the weights or in the model alone")


def _untie(model: nn.Module, but: Collection[str]) -> None:
    """Give each parameter but those of these names memory of its own."""
    for name, module in model.named_modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is not None and (f"{name}.{key}" if name else key) not in but:
                setattr(module, key, nn.Parameter(parameter.clone(), parameter.requires_grad))


def _kept(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a model saves, by every name that it holds each by."""
    for name, module in model.named_modules(remove_duplicate=False):
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and key not in module._non_persistent_buffers_set:
                yield (f"{name}.{key}" if name else key), tensor


def ties_in(model: nn.Module) -> list[list[str]]:
    """The names of each tensor that a model saves and holds by several."""
    names: dict[int, list[str]] = {}
    for name, tensor in _kept(model):
        names.setdefault(id(tensor), []).append(name)
    return [same for same in names.values() if len(same) > 1]


def tie(model: nn.Module, ties: Iterable[Sequence[str]]) -> None:
    """Let a model hold one tensor by all names of a group, the first one's."""
    for first, *others in ties:
        tensor = getattr(*locate(model, first))
        for name in others:
            setattr(*locate(model, name), tensor)


def edits_between(old: nn.Module, new: nn.Module) -> list[Edit]:
    """Return the edits that make one model of another: those that it carries, and what differs besides.

    Where what it carries does not lead there, as after changes by hand, or the model cannot be copied, the edits
    follow from what differs. A ValueError names what no edit describes.
    """
    if edits := edits_in(new):
        with suppress(Exception):
            return [*edits, *comparison(replay(_without_numbers(old), edits, new.state_dict()), new)]
    return comparison(old, new)


def comparison(old: nn.Module, new: nn.Module) -> list[Edit]:
    """Return what differs between two models as edits; a ValueError names what no edit describes.

    First come the places of a module that are one with its first place in the old model and not in the new one.
    """
    alone: list[Edit] = []
    edits: list[Edit] = []
    became: dict[nn.Module, nn.Module] = {}

    def look(site: str, was: nn.Module, part: nn.Module) -> None:
        if became.get(was) is part:
            return
        if became.setdefault(was, part) is not part:
            alone.append(Edit(site, "alone", {"alone": True}))
        edit = edit_of(site, was, part)
        if edit is not None:
            edits.append(edit)
            if edit.kind not in ("calls", "sizes"):
                return
        before = forms.children(was)
        for child, inner in forms.children(part).items():
            look(f"{site}.{child}" if site else child, before[child], inner)

    look("", old, new)
    return [*alone, *edits]


def edit_of(site: str, old: nn.Module, new: nn.Module) -> Edit | None:
    """Return the edit that puts one module into another's place, None where they are the same as far as words go."""
    try:
        words = forms.words_of(old, new)
    except ValueError as error:
        lead = f"{site or 'the model'} " if str(error).startswith("has") else ""
        raise ValueError(f"{lead}{error}") from None
    return words and Edit(site, *words)


def _without_numbers(model: nn.Module) -> nn.Module:
    """A copy of a model that takes no memory for its numbers."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    return copy.deepcopy(model, memo)


def replace_parts(
    owner: str,
    model: nn.Module,
    new: Mapping[str, nn.Module],
    inplace: bool,
    tensors: Mapping[str, nn.Parameter] | None = None,
    edits: Collection[Edit] | None = None,
) -> nn.Module:
    """Put modules, and parameters, into their places; return the model, or what took its place.

    A module goes into all places that hold the same one. The model carries the ``edits``, by default those that
    describe each module and the one whose place it takes.
    """
    if "" in new and inplace:
        raise ValueError(
            f"{owner}: the model is itself what is replaced, and not in place: pass inplace=False and go on "
            "with the report's model"
        )
    edits = edits_of(model, new, tensors) if edits is None else edits
    guard(part for name, part in new.items() if owner not in SAME or is_changed(model.get_submodule(name)))
    if "" in new:
        note(new[""], edits)
        return new[""]
    held = all_places(model)
    spots = {name: held.get(model.get_submodule(name), []) for name in new}
    for name, module in new.items():
        put(model, spots[name], module)
    for name, parameter in (tensors or {}).items():
        holder, last = locate(model, name)
        saved = last in holder._buffers and last not in holder._non_persistent_buffers_set
        setattr(holder, last, parameter.detach() if saved else parameter)  # a buffer stays one, or no words tell of it
    note(model, edits)
    call_norms(model)
    if owner not in SAME:
        guard([inside(model)[1], *(locate(model, name)[0] for name in tensors or {})])
    return model


def edits_of(
    model: nn.Module, new: Mapping[str, nn.Module], tensors: Mapping[str, nn.Parameter] | None = None
) -> list[Edit]:
    """Return the edits that put modules and parameters into their places, but for what has no words."""
    edits = []
    for name, module in new.items():
        with suppress(ValueError):
            edits.append(edit_of(name, model.get_submodule(name), module))
    for name, parameter in (tensors or {}).items():
        if getattr(*locate(model, name)).shape != parameter.shape:
            edits.append(Edit(name.rpartition(".")[0], "sizes", {"sizes": True}))
    return [edit for edit in edits if edit is not None]


def call_norms(model: nn.Module) -> None:
    """Let torch's own encoders call their norms where these are no layer norms any more.

    In evaluation without gradients they read the norms' numbers instead, and work them out as layer norms themselves.
    """
    encoders = [
        part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerEncoder)
    ]
    for part in reversed(encoders):  # an encoder is named before its layers
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = part.use_nested_tensor and all(
                getattr(layer, "activation_relu_or_gelu", 0) for layer in part.layers
            )
        elif not (_readable(part.norm1) and _readable(part.norm2)):
            part.activation_relu_or_gelu = 0


def _readable(norm: nn.Module) -> bool:
    """Whether gain, shift and eps of a layer norm tell all about a module."""
    if not isinstance(norm, Norm):
        return isinstance(norm, nn.LayerNorm)
    vectors = dict(norm.named_parameters())
    return is_layer_norm(norm.card.name, norm.arguments) and not norm.offset and {"weight", "bias"} <= set(vectors)


def all_places(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Every name by which a model holds each of its modules."""
    held: dict[nn.Module, list[str]] = {}
    for name, part in model.named_modules(remove_duplicate=False):
        held.setdefault(part, []).append(name)
    return held
