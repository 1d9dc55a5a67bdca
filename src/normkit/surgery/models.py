"""Somebody's model by a word: a folder or hub name of transformers, ``timm:NAME``, or ``package.module:factory``."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from normkit.choice import module_name
from normkit.loading import find_in_current_folder
from normkit.optional import hub_once, library

FORMS = "a folder or hub name of transformers (hf:NAME), timm:NAME, or package.module:factory"
UNREAD = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")  # files of weights that are not read


def load(word: str) -> nn.Module:
    """Build a model; weights are loaded where a folder or the hub has them, from safetensors only, never unpickled.

    Of timm a name with a tag, ``timm:resnet18.a1_in1k``, is that of weights. What has fresh ones says so in a warning.
    """
    source, colon, rest = word.partition(":")
    if source == "timm" and rest:
        return _timm(rest)
    hub = source == "hf" and rest
    whole, word = word, rest if hub else word
    if colon and not hub and not os.path.exists(word):
        return _call_factory(word)
    asks_hub = word[0] not in "/.~" if hub else _is_hub_name(word) and not Path(word).parent.is_dir()
    if asks_hub or Path(word).is_dir():
        return _transformers(word, whole)
    hints = (hint for ask in (_of_file, _of_folder, _of_timm) if (hint := ask(word)))
    raise ValueError(f"there is no model {word!r}: {next(hints, f'a model is {FORMS}')}")


def _of_timm(name: str) -> str:
    """How a model of timm is asked for, where timm is installed and has one of that name."""
    with contextlib.suppress(ImportError, ValueError):
        timm_with(name)
        return f"did you mean timm:{name}?"
    return ""


def _is_hub_name(word: str) -> bool:
    """Whether a word has the form of a name that the hub gives, with its owner."""
    return word.count("/") == 1 and word[0] not in "/.~"


def _of_folder(word: str) -> str:
    """What is missing in a folder that is there."""
    if "/" not in word or not Path(word).parent.is_dir():
        return ""
    return "no such folder" + (f"; hf:{word} asks the hub" if _is_hub_name(word) else "")


def _of_file(word: str) -> str:
    """What is wanted instead of a file, where there is one."""
    if Path(word).is_file():
        return "it is a file; name a function that makes the model and loads it, package.module:function"
    return ""


def _timm(name: str) -> nn.Module:
    timm, tag = timm_with(name), name.partition(".")[2]
    if not tag:
        _warn_fresh(f"timm:{name}", f"timm:{name}.TAG loads those of a checkpoint, of timm.list_pretrained({name!r})")
        return timm.create_model(name)
    try:
        with hub_once(name):
            return timm.create_model(name, pretrained=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"model 'timm:{name}' cannot be loaded: {error}") from error


def _warn_fresh(word: str, instead: str) -> None:
    warnings.warn(f"{word} has fresh weights, which no training has seen; {instead}", stacklevel=4)


def timm_with(name: str) -> Any:
    """Return timm, once it is known to have a model of that name; else name the nearest."""
    timm = library("timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"nearest: {', '.join(near)}" if near else "timm.list_models() names all"
        raise ValueError(f"timm has no model {name!r}; {hint}")
    return timm


def _transformers(word: str, whole: str) -> nn.Module:
    transformers, folder = library("transformers"), Path(word)
    damage = importlib.import_module("safetensors").SafetensorError
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ValueError(f"{word} holds no config.json, so it is no model of transformers")
    fresh = folder.is_dir() and not list(folder.glob("*.safetensors"))
    unread = [path.name for pattern in UNREAD for path in sorted(folder.glob(pattern))] if fresh else []
    if unread:
        raise ValueError(f"the weights of {word} are in {unread[0]}, which is not read; save them as safetensors")
    try:
        with hub_once(word):
            config = transformers.AutoConfig.from_pretrained(word)
            named = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)
            if not fresh:
                return named.from_pretrained(word, use_safetensors=True)
        _warn_fresh(word, "a folder with model.safetensors beside its config.json has its own")
        return named.from_config(config) if named is transformers.AutoModel else named(config)
    except (OSError, ValueError, damage) as error:  # neither there nor at hand without a connection, or damaged
        raise ValueError(f"model {whole!r} cannot be loaded: {error}") from error


def import_object(source: str, role: str, hint: str = "") -> Any:
    """Import ``module:name``, with modules of the current folder."""
    module, _, name = source.partition(":")
    if not module or module.startswith(".") or module.endswith(".py") or "/" in module:
        own = f"{module_name(module) or 'MODULE'}:{name or 'NAME'}"
        raise ValueError(f"{role} {source!r} must be a module of the working directory and a name in it: {own}")
    find_in_current_folder()
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{role} {source!r} cannot be imported: {error}{hint}") from error


def _call_factory(source: str) -> nn.Module:
    factory = import_object(source, "model", f"; a model is {FORMS}")
    model = _call(factory, source) if callable(factory) and not isinstance(factory, nn.Module) else factory
    if not isinstance(model, nn.Module):
        raise ValueError(f"{source} gives {type(model).__name__}, not a torch.nn.Module")
    return model


def _call(function: Any, source: str) -> Any:
    """Call a function that makes a model; one that wants arguments is named."""
    try:
        parameters = inspect.signature(function).parameters.values()
        required = [
            p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except ValueError:  # of some built-in functions nothing is known
        required = []
    if required:
        raise ValueError(
            f"{source} wants {' and '.join(required)}; write a function without arguments that makes the model, "
            "and name that: package.module:function"
        )
    return function()
