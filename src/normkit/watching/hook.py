"""A hook of the watch, which a copy of the model does not take over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hook:
    """Calls ``act`` where a module is called; a copy, as of a model that is copied or pickled, does nothing.

    >>> import copy
    >>> hook = Hook(lambda value: value + 1)
    >>> hook(1), copy.deepcopy(hook)(1)
    (2, None)
    """

    looks_on = True  # so that fused paths stay as they are

    def __init__(self, act: Callable[..., Any] | None = None):
        self.act = act

    @property
    def idle(self) -> bool:
        """Whether it does nothing, so that a copied model counts as one without hooks."""
        return self.act is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do it."""
        return None if self.act is None else self.act(*args, **kwargs)

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return Hook, ()
