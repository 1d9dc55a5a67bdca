"""A changed model in a folder, and back: weights as safetensors, and what is where in words; nothing is pickled."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from normkit.files import check_replaceable, folder_beside, require_place
from normkit.optional import at_hand, library
from normkit.surgery import models, proof
from normkit.surgery.edits import (
    Edit,
    bits,
    edits_between,
    load_numbers,
    of_words,
    replay,
    rewriting,
    tie,
    ties_in,
)
from normkit.surgery.seals import SEALS, check_seals, seal_lines

WEIGHTS, INDEX, PARTS = "model.safetensors", "model.safetensors.index.json", "normkit.json"
# Of a model that its library would open as what it was: weights under a name, and a configuration at a place, where
# the library does not look, and in its stead one that makes it say who does.
OWN_WEIGHTS, ORIGINAL = "normkit.safetensors", "original"
GENERATION = "generation_config.json"  # how a model generates, which transformers keeps apart from its configuration
CHANGED = "changed by normkit: nk.load opens its folder"
MARKS = (CHANGED, "changed by normkit: normkit.surgery.saving.load opens its folder")  # as older folders say it
CLOSE = 1e-4  # of the largest output: what float32 may differ by where norms are worked out another way


def save(old: nn.Module, new: nn.Module, folder: str, *, same: bool = False) -> Path:
    """Write a changed model, beside first and then renamed; the folder must be new or empty.

    Where modules changed, ``normkit.json`` says which, and :func:`load` builds the model again; transformers and timm,
    which would build the old one, refuse the folder. Where none did, or all compute the ``same`` by tensors of the same
    names, they read it as any. Of a model that a function of the user's makes, the folder holds what is put into it.
    """
    place = new_folder(folder)
    edits, ties = [edit.to_dict() for edit in edits_between(old, new)], ties_in(new)
    foreign = foreign_class(old)
    with folder_beside(place) as beside:
        closed = bool(edits) and not (same and old.state_dict().keys() == new.state_dict().keys())
        own = _hide_config(new, beside) if closed else _config(new, beside)
        weights = OWN_WEIGHTS if closed and own else WEIGHTS
        _safetensors().save_file(_state(new), beside / weights, metadata={"format": "pt"})
        if edits or not own or foreign or ties != ties_in(old):
            (beside / PARTS).write_text(json.dumps({"edits": edits, "ties": ties, **foreign}, indent=1))
        (beside / SEALS).write_text(seal_lines(beside), newline="\n")
        new_folder(folder)  # which another process may have written meanwhile
    return place


def plain_state(old: nn.Module, new: nn.Module, example: Any) -> dict[str, Tensor]:
    """Return the weights of a folded or fused model as a state of the old model's own classes.

    Whoever loads it builds the old model and needs no normkit. It is proven on the example, and refused where the old
    classes cannot hold what the new ones do, as after a swap, or where a batch norm is gone.

    >>> import torch
    >>> old = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))
    >>> list(plain_state(old, copy.deepcopy(old), torch.randn(3, 4)))
    ['0.weight', '0.bias', '1.weight', '1.bias']
    """
    state, before = _state(new), old.state_dict()
    for name in [*before, *state]:
        if name not in state or name not in before or state[name].shape != before[name].shape:
            owner = name.rpartition(".")[0]
            module = dict(new.named_modules()).get(owner)
            raise ValueError(
                f"plain_state: {name} has no place in both models; {owner!r} is by now {type(module).__name__}"
            )
    other, own = copy.deepcopy(old).eval(), copy.deepcopy(new).eval()
    other.load_state_dict(state)
    apart = proof.apart(own, other, example)
    if not apart <= CLOSE:
        parts = dict(old.named_modules())
        changed = [
            f"; {k!r} is by now {type(m).__name__}" for k, m in new.named_modules() if type(m) is not type(parts.get(k))
        ]
        raise ValueError(
            f"plain_state: with these weights the old model's outputs differ by {apart:.1e} of the largest"
            f"{''.join(changed[:1])}"
        )
    return state


def new_folder(folder: str) -> Path:
    """The place of a folder that is to be written; refused where that cannot be, or where something is there."""
    place = Path(folder)
    require_place(place)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{folder} exists already; name a new or empty folder")
    check_replaceable(place)
    return place


def _safetensors() -> Any:
    if at_hand("safetensors") is None:
        raise ValueError("safetensors is not installed; timm and transformers bring it: pip install safetensors")
    return importlib.import_module("safetensors.torch")


def _state(model: nn.Module) -> dict[str, Tensor]:
    """All tensors by name, none sharing memory with another; those of few bits in the parts that they are made of.

    They are the model's own where they can be: a copy of all would take the memory of a second model.
    """
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):  # as in the quantized layers of torch.ao
            raise ValueError(
                f"{name} is a {type(tensor).__name__}, and a folder holds tensors alone: save the model before it is "
                "quantized, or without that layer"
            )
        state[name] = tensor
    apart: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in in_parts(state).items():
        storage = tensor.untyped_storage().data_ptr()
        apart[name] = (tensor.detach().clone() if storage in storages else tensor.detach()).contiguous()
        storages.add(storage)
    return apart


def in_parts(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put the parts of tensors of few bits in their place, which safetensors cannot write as they are."""
    parts: dict[str, Tensor] = {}
    for name, tensor in state.items():
        parts |= {f"{name}.{part}": own for part, own in bits.parts(tensor).items()} or {name: tensor}
    return parts


def is_timm(model: nn.Module) -> bool:
    """Whether timm can write a model's configuration: not that of one which returns features."""
    return hasattr(model, "pretrained_cfg") and hasattr(model, "num_classes")


def of_config(kind: type[nn.Module], config: Any) -> nn.Module:
    """Build a model of transformers, with its type, which a configuration that was saved names by a word."""
    return getattr(kind, "_from_config", kind)(config)


def foreign_class(model: nn.Module) -> dict[str, str]:
    """What a folder says of the class of a model of transformers which is none of theirs, be its name one of theirs."""
    if is_timm(model) or not hasattr(getattr(model, "config", None), "save_pretrained"):
        return {}
    kind = rewriting.own_class(model)
    if getattr(library("transformers"), kind.__name__, None) is kind:
        return {}
    return {"class": f"{kind.__module__}.{kind.__qualname__}"}


def _class_of(config: Any, name: str, foreign: bool) -> type[nn.Module] | None:
    """Find a class by its name: of transformers, unless it is foreign, or one that is registered with an AutoModel."""
    transformers = library("transformers")
    theirs: type[nn.Module] | None = getattr(transformers, name, None)
    if theirs is not None and not foreign:
        return theirs
    for auto in (getattr(transformers, word) for word in dir(transformers) if word.startswith("AutoModel")):
        kind: type[nn.Module] | None = getattr(auto, "_model_mapping", {}).get(type(config), None)
        if getattr(kind, "__name__", None) == name and kind is not theirs:
            return kind
    return None


def _config(model: nn.Module, folder: Path) -> bool:
    """Write the configuration in the form of the library that a model is of; whether there is one."""
    if is_timm(model):
        library("timm").models.save_for_hf(model, str(folder), safe_serialization=True)
        return True
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "save_pretrained"):
        config = copy.deepcopy(config)
        config.architectures = [type(model).__name__]
        name = "dtype" if hasattr(config, "dtype") else "torch_dtype"  # as transformers had it before 4.56
        if dtypes := [p.dtype for p in model.parameters() if p.is_floating_point()]:
            setattr(config, name, str(dtypes[0]).rpartition(".")[2])  # not of the checkpoint that was cast since
        config.save_pretrained(folder)
        if (generation := getattr(model, "generation_config", None)) is not None:
            generation.to_json_file(folder / GENERATION)  # its save_pretrained refuses a value without effect
        return True
    return False


def _hide_config(model: nn.Module, folder: Path) -> bool:
    """Write the configuration where the library that a model is of does not take it for its own."""
    own = _config(model, folder / ORIGINAL)
    if own:
        (folder / ORIGINAL / WEIGHTS).unlink(missing_ok=True)
        (folder / "config.json").write_text(json.dumps({"model_type": CHANGED, "architecture": CHANGED}, indent=1))
    return own


def load(word: str) -> nn.Module:
    """Build a model by a word, as :func:`normkit.surgery.models.load` does, and those that :func:`save` has written.

    Of a model of one's own, ``module:factory@FOLDER`` is what the function makes, with what the folder says.
    """
    factory, at, folder = word.partition("@")
    if at and ":" in factory and not Path(word).is_dir():
        check_seals(folder)
        return rebuilt(models.load(factory), folder)
    check_seals(word)
    if _is_kept(word):
        return rebuilt(_build_from_config(word), word)
    return models.load(word)


def _is_kept(folder: str) -> bool:
    """Whether a folder is one that :func:`save` has written, as far as it is whole, or timm."""
    kept = Path(folder, PARTS).is_file() or is_closed(folder)
    return kept or (_of_timm(folder) and weights_of(folder)[0].is_file())


def is_closed(folder: str) -> bool:
    """Whether a folder is written so that the library of its model does not open it."""
    config = Path(folder, "config.json")
    return Path(folder, OWN_WEIGHTS).is_file() or (
        _config_path(folder) != Path(folder) or (config.is_file() and _read_json(config).get("model_type") in MARKS)
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if not isinstance(held, dict):
        raise ValueError(f"{file} is damaged: it holds a {type(held).__name__}, not a dictionary")
    return held


def weights_of(folder: str) -> list[Path]:
    """The files that hold a folder's weights."""
    own, index, config = (Path(folder, name) for name in (OWN_WEIGHTS, INDEX, "config.json"))
    if own.is_file() or (config.is_file() and _read_json(config).get("architecture") in MARKS):
        return [own]
    if not index.is_file():
        return [Path(folder, WEIGHTS)]
    files = _read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{index} is damaged: it names no files of weights")
    return [Path(folder, name) for name in sorted(set(files.values()))]


def _read_weights(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise ValueError(f"{file} is missing")
    load_file, damage = _safetensors().load_file, importlib.import_module("safetensors").SafetensorError
    try:
        return load_file(file)
    except (damage, ValueError) as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def _config_path(folder: str) -> Path:
    """Where the configuration lies as the library has it."""
    return Path(folder, ORIGINAL) if Path(folder, ORIGINAL, "config.json").is_file() else Path(folder)


def _of_timm(folder: str) -> bool:
    config = _config_path(folder) / "config.json"
    named = _read_json(config) if config.is_file() else {}
    return "architecture" in named and "model_type" not in named  # transformers wraps models of timm


def _build_from_config(folder: str) -> nn.Module:
    """The model that a folder's configuration describes, without its weights."""
    place = _config_path(folder)
    if not (place / "config.json").is_file():
        raise ValueError(f"{folder} holds no config.json: name what builds the model, module:factory@{folder}")
    if place == Path(folder) and _read_json(place / "config.json").get("model_type") in MARKS:
        raise ValueError(f"{place / ORIGINAL / 'config.json'} is missing")
    if _of_timm(folder):
        return library("timm").create_model(f"local-dir:{place}", pretrained=False)
    transformers, stored = library("transformers"), _read_json(place / "config.json")
    foreign, name, kind = _held(folder).get("class"), (stored.get("architectures") or ["model"])[0], None
    if stored.get("model_type") in transformers.CONFIG_MAPPING:  # else it may ask whether to run code of the folder
        config = transformers.AutoConfig.from_pretrained(place)
        kind = _class_of(config, name, foreign is not None)
    if kind is None:
        raise ValueError(
            f"{folder} holds a {foreign or name}, which transformers does not build: name what does, "
            f"module:factory@{folder}"
        )
    model = of_config(kind, config)
    for file in (place / GENERATION, Path(folder, GENERATION)):  # save_pretrained writes the latter
        if file.is_file():
            model.generation_config = transformers.GenerationConfig.from_dict(_read_json(file))
            break
    return model


def _held(folder: str) -> Mapping[str, Any]:
    """What a folder says of its model in words."""
    place = Path(folder, PARTS)
    if not place.is_file() and (is_closed(folder) or not Path(folder, "config.json").is_file()):
        raise ValueError(f"{place} is missing")
    held = _read_json(place) if place.is_file() else {}
    if "unknown" in held:
        raise ValueError(f"{folder}: build the model yourself and load its weights; {held['unknown']}")
    return held


def edits_of(folder: str) -> list[Edit]:
    """The edits that a folder holds; of one that was written before they had a list, its words by site."""
    held = _held(folder)
    try:
        if "parts" in held:
            return [of_words(site, words) for site, words in held["parts"].items()]
        return [Edit.from_dict(values) for values in held.get("edits", ())]
    except (AttributeError, KeyError, StopIteration, TypeError) as error:
        raise ValueError(f"{Path(folder, PARTS)} is damaged: it holds what is no edit") from error


def rebuilt(model: nn.Module, folder: str) -> nn.Module:
    """Put into a model what a folder says, and its weights."""
    edits, ties = edits_of(folder), _held(folder).get("ties")
    state: dict[str, Tensor] = {}
    for file in weights_of(folder):
        state |= _read_weights(file)
    _cast(model, state)
    same = not is_closed(folder) and Path(folder, "config.json").is_file()
    model = replay(model, edits, state, same)
    ties = _complete_ties(model, state) if ties is None else ties
    load_numbers(model, state)
    tie(model, ties)
    return model.eval()


def _complete_ties(model: nn.Module, state: dict[str, Tensor]) -> list[list[str]]:
    """Complete a state that names tied tensors once, as transformers writes them; return those that stay tied.

    They are all that is known where a folder says nothing of ties, as those of before.
    """
    partly = [names for names in ties_in(model) if {name in state for name in names} == {True, False}]
    for names in partly:
        state |= dict.fromkeys(names, next(state[name] for name in names if name in state))
    return partly


def _cast(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give a model's tensors the types that were saved."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in state:
            kind = state[name].dtype
            if tensor.requires_grad and not (kind.is_floating_point or kind.is_complex):
                raise ValueError(f"{name} is of {kind} in the weights, and a trained parameter of the model")
            tensor.data = tensor.data.to(kind)
