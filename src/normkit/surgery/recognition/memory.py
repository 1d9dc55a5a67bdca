"""What was probed before, by the source of a module's classes and its configuration."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from typing import TYPE_CHECKING

import torch
from torch import nn

from normkit.surgery.recognition.fingerprint import Unknown, configuration, fingerprint

if TYPE_CHECKING:
    from normkit.surgery.recognition.recognize import Match

REMEMBERED = "remembered"
MOST = 4096  # verdicts that are kept

_verdicts: dict[str, Match] = {}


def key(module: nn.Module, width: int | None) -> str | None:
    """Return what two modules share if one verdict is good for both; None where something it reads is not known."""
    try:
        source, config = fingerprint(module), configuration(module)
    except Unknown:
        return None
    about = source, sorted(config.items()), width, str(torch.get_default_dtype())
    return hashlib.sha256(repr(about).encode()).hexdigest()


def recall(name: str) -> Match | None:
    """Return the verdict of a key, without a module, or None."""
    match = _verdicts.get(name)
    return None if match is None else _copied(match, REMEMBERED)


def remember(name: str, match: Match) -> None:
    """Keep the verdict of a key."""
    if len(_verdicts) >= MOST:
        _verdicts.clear()
    _verdicts[name] = _copied(match, match.how)


def _copied(match: Match, how: str) -> Match:
    """The verdict alone: nothing that its reader changes comes back."""
    return copy.deepcopy(dataclasses.replace(match, module=None, how=how))
