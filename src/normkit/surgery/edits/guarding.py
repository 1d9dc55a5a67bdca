"""What keeps a changed model of transformers, or one that holds a changed part, from being saved as the old one.

What was changed bears a mark, which is copied and pickled with it, and ``save_pretrained`` looks for marks.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from torch import nn

CHANGED = "_normkit_changed"  # where a module bears its mark
ADAPTERS = (
    "save_pretrained writes adapters alone, without the norms that were put into the model: write the model by nk.save "
    "before it has adapters, or once they are merged, and put them on what nk.load opens"
)


class Mark:
    """What a changed module bears; making one, also from a file, lets ``save_pretrained`` look for it."""

    def __init__(self) -> None:
        modeling = sys.modules.get("transformers.modeling_utils")  # without it no model is of transformers
        if modeling is not None:
            _look_for_marks(modeling.PreTrainedModel)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mark, ()


def guard(changed: Iterable[nn.Module]) -> None:
    """Let ``save_pretrained`` of what holds any of these modules write a folder that is never opened as the old model.

    Of a model with adapters by ``peft`` it writes the adapters alone, and warns that what was changed is not in them.
    """
    module: Any
    for module in changed:
        vars(module)[CHANGED] = Mark()
        if hasattr(module, "get_base_model"):
            # no bound method: it would be unpickled by its name, which the class does not have
            module.save_pretrained = functools.partial(_save_adapters, module)


def is_changed(module: nn.Module) -> bool:
    """Whether a module, or a part of it, was changed."""
    return any(CHANGED in vars(part) for part in module.modules())


@functools.cache
def _look_for_marks(kind: Any) -> None:
    """Let all models of transformers be saved as changed ones where they are: a part does not know what holds it."""
    plain = kind.save_pretrained

    @functools.wraps(plain)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        adapters = getattr(self, "_hf_peft_config_loaded", False)
        if adapters or not is_changed(self):
            if adapters and is_changed(self):
                warnings.warn(ADAPTERS, stacklevel=2)
            return plain(self, *args, **kwargs)
        keeping = importlib.import_module("normkit.surgery.keeping")
        return keeping.save_pretrained(functools.partial(plain, self), self, *args, **kwargs)

    kind.save_pretrained = save_pretrained


def _save_adapters(self: Any, *args: Any, **kwargs: Any) -> Any:
    warnings.warn(ADAPTERS, stacklevel=2)
    return type(self).save_pretrained(self, *args, **kwargs)


def _save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What a model calls that was changed and pickled before there were marks."""
    guard([self])
    return type(self).save_pretrained(self, *args, **kwargs)
