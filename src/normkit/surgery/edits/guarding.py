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
SAVING = "_normkit_saving"  # and what tells it that it is being saved by a save_pretrained of its own
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
        # no bound methods: they would be unpickled by their names, which the class does not have
        if hasattr(module, "get_base_model"):
            module.save_pretrained = functools.partial(_save_adapters, module)
        elif _saves_itself(module):
            module.save_pretrained = functools.partial(_save_pretrained, module)


def _saves_itself(module: Any) -> bool:
    """Whether a model has a configuration as transformers', and its class another ``save_pretrained`` than theirs."""
    modeling, own = sys.modules.get("transformers.modeling_utils"), getattr(type(module), "save_pretrained", None)
    usual = modeling.PreTrainedModel.save_pretrained if modeling is not None else None
    return own not in (None, usual) and hasattr(getattr(module, "config", None), "save_pretrained")


def is_changed(module: nn.Module) -> bool:
    """Whether a module, or a part of it, was changed."""
    return any(CHANGED in vars(part) for part in module.modules())


@functools.cache
def _look_for_marks(kind: Any) -> None:
    """Let all models of transformers be saved as changed ones where they are: a part does not know what holds it."""
    plain = kind.save_pretrained

    @functools.wraps(plain)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        if SAVING in vars(self):
            return plain(self, *args, **kwargs)
        adapters, changed = getattr(self, "_hf_peft_config_loaded", False), is_changed(self)
        if adapters:
            if changed:
                warnings.warn(ADAPTERS, stacklevel=2)
            return plain(self, *args, **kwargs)
        keeping = importlib.import_module("normkit.surgery.keeping")
        save = keeping.save_pretrained if changed else keeping.save_unchanged
        return save(functools.partial(plain, self), self, *args, **kwargs)

    kind.save_pretrained = save_pretrained


def _save_adapters(self: Any, *args: Any, **kwargs: Any) -> Any:
    warnings.warn(ADAPTERS, stacklevel=2)
    return type(self).save_pretrained(self, *args, **kwargs)


def _save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What a changed model calls whose class saves itself, or that was pickled before there were marks."""
    guard([self])
    plain = functools.partial(type(self).save_pretrained, self)
    if not _saves_itself(self):
        return plain(*args, **kwargs)
    vars(self)[SAVING] = True
    try:
        return importlib.import_module("normkit.surgery.keeping").save_pretrained(plain, self, *args, **kwargs)
    finally:
        del vars(self)[SAVING]
