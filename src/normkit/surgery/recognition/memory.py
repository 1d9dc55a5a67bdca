"""What was probed before, by the source of a module's classes and its configuration."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from normkit.surgery.recognition import stored
from normkit.surgery.recognition.fingerprint import Unknown, configuration, fingerprint

if TYPE_CHECKING:
    from normkit.surgery.recognition.match import Match

REMEMBERED = "remembered"
MOST = 4096  # verdicts that are kept

_verdicts: dict[str, Match] = {}


class Key(NamedTuple):
    """What two modules share if one verdict is good for both; ``usual`` where new tensors have torch's usual type."""

    name: str
    source: str
    config: Mapping[str, str]
    usual: bool


def key(module: nn.Module, size: tuple[int, ...] | None) -> Key | None:
    """Return a module's key; None where something that it reads is not known."""
    try:
        source, config = fingerprint(module), configuration(module)
    except Unknown:
        return None
    classes = [f"{type(part).__module__}.{type(part).__qualname__}" for part in module.modules()]
    about = source, classes, sorted(config.items()), size, str(torch.get_default_dtype())
    usual = torch.get_default_dtype() is torch.float32
    return Key(hashlib.sha256(repr(about).encode()).hexdigest(), source, config, usual)


def recall(key: Key, of: type[Match]) -> Match | None:
    """Return the verdict of a key, without a module, of this process or of an earlier one, or None."""
    match = _verdicts.get(key.name)
    if match is None and (verdict := stored.read(key.name)) is not None:
        match = _verdicts[key.name] = of(**verdict)
    return None if match is None else _copy_verdict(match, REMEMBERED)


def remember(key: Key, match: Match) -> None:
    """Keep the verdict of a key."""
    if len(_verdicts) >= MOST:
        _verdicts.clear()
    _verdicts[key.name] = _copy_verdict(match, match.how)
    stored.write(key.name, match.to_dict())


def _copy_verdict(match: Match, how: str) -> Match:
    """The verdict alone: nothing that its reader changes comes back."""
    return copy.deepcopy(dataclasses.replace(match, module=None, how=how))
