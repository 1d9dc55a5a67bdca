"""Which parts of a model are meant: by name, by pattern, by class, or by what a function says."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection

from torch import nn

Where = str | type | Callable[[str, nn.Module], bool] | Collection["str | type"] | None


def selects(where: Where, name: str, module: nn.Module) -> bool:
    """Whether a module is meant; all are where nothing is said.

    >>> norm = nn.LayerNorm(2)
    >>> [selects(where, "blocks.0.norm", norm) for where in (None, "*.norm", "norm", nn.LayerNorm, ["*.a", "*.norm"])]
    [True, True, False, True, True]
    """
    if where is None:
        return True
    if isinstance(where, str):
        return fnmatch.fnmatchcase(name, where)
    if isinstance(where, type):
        return isinstance(module, where)
    if callable(where):
        return bool(where(name, module))
    return any(selects(each, name, module) for each in where)


def require_known(function: str, where: Where, model: nn.Module) -> None:
    """Refuse names and patterns of a list that fit no part of a model, as one with a slip of the pen does.

    So is what can be gone over once alone, such as a generator: it is gone over for each module.
    """
    if where is None or isinstance(where, str | type) or callable(where):
        return
    if not isinstance(where, Collection):
        raise TypeError(
            f"{function}: where must be a name, a class, a function, or a list of names and classes, "
            f"not {type(where).__name__}"
        )
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    if unknown := [each for each in where if isinstance(each, str) and not fnmatch.filter(names, each)]:
        raise ValueError(f"{function}: where has {', '.join(map(repr, unknown))}, which no part of the model is called")
