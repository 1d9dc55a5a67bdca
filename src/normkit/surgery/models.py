"""Somebody's model by a word: a folder or hub name of transformers, ``timm:NAME``, or ``package.module:factory``."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from torch import nn

from normkit.optional import library

FORMS = "a folder or hub name of transformers, timm:NAME, or package.module:factory"


def load(word: str) -> nn.Module:
    """Build a model; weights are loaded where a folder or the hub has them, from safetensors only, never unpickled."""
    source, colon, rest = word.partition(":")
    if source == "timm" and rest:
        return timm_with(rest).create_model(rest)
    if source == "hf" and rest:
        return load(rest)
    if colon and not os.path.exists(word):
        return _call_factory(word)
    if Path(word).is_dir() or (word.count("/") == 1 and word[0] not in "/.~"):
        return _transformers(word)
    raise ValueError(f"there is no model {word!r}: {_of_timm(word) or f'a model is {FORMS}'}")


def _of_timm(name: str) -> str:
    """How a model of timm is asked for, where timm is installed and has one of that name."""
    with contextlib.suppress(ImportError, ValueError):
        timm_with(name)
        return f"did you mean timm:{name}?"
    return ""


def timm_with(name: str) -> Any:
    """Return timm, once it is known to have a model of that name; else name the nearest."""
    timm = library("timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"nearest: {', '.join(near)}" if near else "timm.list_models() names all"
        raise ValueError(f"timm has no model {name!r}; {hint}")
    return timm


def _transformers(word: str) -> nn.Module:
    transformers = library("transformers")
    if Path(word).is_dir() and not Path(word, "config.json").is_file():
        raise ValueError(f"{word} holds no config.json, so it is no model of transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(word)
        named = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)
        if Path(word).is_dir() and not list(Path(word).glob("*.safetensors")):
            return named.from_config(config) if named is transformers.AutoModel else named(config)
        return named.from_pretrained(word, use_safetensors=True)
    except (OSError, ValueError) as error:  # neither there nor at hand without a connection, or damaged
        raise ValueError(f"model {word!r} cannot be loaded: {error}") from error


def import_object(source: str, role: str, hint: str = "") -> Any:
    """Import ``module:name``, with modules of the current folder."""
    module, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
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
