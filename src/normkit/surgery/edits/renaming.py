"""Tensors that a module saves and loads under other names than its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass
class Saved:
    """Renames what is saved; ``names`` are what a module's tensors are called there, by what the module calls them."""

    names: Mapping[str, str]

    def __call__(self, module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        """Rename."""
        for ours, theirs in self.names.items():
            if prefix + ours in state:
                state[prefix + theirs] = state.pop(prefix + ours)


@dataclass
class Loaded:
    """Renames what is loaded, back."""

    names: Mapping[str, str]

    def __call__(self, module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Rename."""
        for ours, theirs in self.names.items():
            if prefix + theirs in state:
                state[prefix + ours] = state.pop(prefix + theirs)


def rename(module: nn.Module, names: Mapping[str, str]) -> None:
    """Let a module save and load its tensors under other names; it can be pickled still."""
    module.register_state_dict_post_hook(Saved(dict(names)))
    module.register_load_state_dict_pre_hook(Loaded(dict(names)))


def names_of(module: nn.Module) -> dict[str, str]:
    """The other names that a module was given."""
    return next((dict(hook.names) for hook in module._state_dict_hooks.values() if isinstance(hook, Saved)), {})
