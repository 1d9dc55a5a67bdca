"""Somebody's model by a word: a folder or hub name of transformers, ``timm:NAME``, or ``package.module:factory``."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path

from torch import nn

from normkit.optional import library

FORMS = "a folder or hub name of transformers, timm:NAME, or package.module:factory"


def load(word: str) -> nn.Module:
    """Build a model; weights are loaded where a folder or the hub has them, from safetensors only, never unpickled."""
    source, colon, rest = word.partition(":")
    if source == "timm" and rest:
        return _timm(rest)
    if colon and not os.path.exists(word):
        return _factory(source, rest)
    if Path(word).is_dir() or word.count("/") == 1:
        return _transformers(word)
    raise ValueError(f"there is no model {word!r}: a model is {FORMS}")


def _timm(name: str) -> nn.Module:
    timm = library("timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise ValueError(f"timm has no model {name!r}; nearest: {', '.join(near) or 'see timm.list_models()'}")
    return timm.create_model(name)


def _transformers(word: str) -> nn.Module:
    transformers = library("transformers")
    if Path(word).is_dir() and not Path(word, "config.json").is_file():
        raise ValueError(f"{word} holds no config.json, so it is no model of transformers")
    config = transformers.AutoConfig.from_pretrained(word)
    named = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)
    if Path(word).is_dir() and not list(Path(word).glob("*.safetensors")):
        return named.from_config(config) if named is transformers.AutoModel else named(config)
    return named.from_pretrained(word, use_safetensors=True)


def _factory(module: str, name: str) -> nn.Module:
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name!r} for {module}:{name}; a model is {FORMS}") from None
    finally:
        sys.path.pop(0)
    made = found() if callable(found) and not isinstance(found, nn.Module) else found
    if not isinstance(made, nn.Module):
        raise ValueError(f"{module}:{name} gives {type(made).__name__}, not a torch.nn.Module")
    return made
