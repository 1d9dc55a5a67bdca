"""Methods that are set from data and then called: modules that scikit-learn takes as estimators."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from normkit.kinds.arrays import takes_arrays
from normkit.kinds.kind import FITTED_LINES, Kind, Subject
from normkit.kinds.module import Method, ModuleKind

if TYPE_CHECKING:
    from normkit.catalog import Card


@dataclass(frozen=True)
class FittedKind(Kind):
    """A module that is set by ``fit(...)`` or ``update(...)``, on tensors or arrays, and called with new ones."""

    prepare = ModuleKind.prepare
    saved = ModuleKind.saved

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        return list(inspect.signature(card.entry.forward).parameters)[1:]

    def entered(self, entry: Any) -> Any:
        """The class, whose methods take NumPy arrays as well."""
        for name, value in list(vars(entry).items()):
            if inspect.isfunction(value) and not name.startswith("_"):
                setattr(entry, name, _takes_data(takes_arrays(value)))
        return entry

    def setter(self, entry: Any) -> str | None:
        """The name of the method that sets it from data; None where a call itself does."""
        return next((name for name in ("fit", "update") if hasattr(entry, name)), None)

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """Build, set, call."""
        named = ", ".join(filter(None, [f'"{card.name}"', arguments]))
        called = ", ".join(inputs.split(", ")[: len(self.takes(card))])
        setter = self.setter(card.entry)
        call = f"fitted.{setter}({inputs})" if setter else "fitted"
        comment = "" if setter else "# there is nothing to fit: each call is remembered\n"
        return f"fitted = nk.{card.entry.__name__}({arguments})  # or nk.create({named})\n{comment}y = {call}({called})"

    def subject(self, card: Card, features: int = 8, dtype: torch.dtype = torch.float64, **drawing: Any) -> Subject:
        """Build a smallest instance in ``dtype``, set it, and draw inputs for a call."""
        instance = self.small(card, features).to(dtype)
        first = self.draw(card, features, dtype=dtype, **drawing)
        setter = self.setter(card.entry)
        if setter:
            getattr(instance, setter)(*first)
        inputs = self.draw(card, features, dtype=dtype, **{**drawing, "seed": drawing.get("seed", 0) + 1})
        return Subject(instance, inputs[: len(self.takes(card))], instance, {}, dict(instance.named_buffers()))


def _takes_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method take as its first argument all that scikit-learn may hand it, and refuse in its words the rest."""
    names = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def call(self, *args, **kwargs):
        if not args or isinstance(args[0], Tensor):
            return function(self, *args, **kwargs)
        return function(self, _numbers(self, names[0], args[0]), *args[1:], **kwargs)

    return call


def _numbers(owner: object, name: str, x: Any) -> Any:
    """Data as an array of floating-point numbers."""
    whose = f"{type(owner).__name__}: {name}"
    if hasattr(x, "toarray"):
        raise TypeError(f"{whose} is sparse, and sparse data are not taken")
    x = np.asarray(x)
    if x.dtype.kind == "c":
        raise ValueError(f"{whose}: Complex data not supported")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


FITTED = FittedKind("fitted", "fitted", "inference", FITTED_LINES)


class Fitted(Method):
    """A module that is set from data; its buffers are what it found.

    ``late`` names the buffers whose shapes only the data tell: a checkpoint gives them to a module that was never set.
    scikit-learn takes it: arguments can be read and set, ``fit`` returns the module, and arrays go in and out.
    """

    kind = FITTED
    late: ClassVar[tuple[str, ...]] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments, as scikit-learn asks for them."""
        return dict(self.arguments)

    def set_params(self, **params: Any) -> Fitted:
        """Build it anew with other arguments, where it is and in its type and mode; what was found is lost."""
        fresh = type(self)(**{**self.arguments, **params}).train(self.training)
        buffer = next(filter(torch.is_floating_point, self.buffers()), None)
        fresh = fresh if buffer is None else fresh.to(buffer)
        self.__dict__.clear()
        self.__dict__.update(fresh.__dict__)
        return self

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in self.late:
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor):
                now = getattr(self, name)
                setattr(self, name, torch.empty(value.shape, dtype=now.dtype, device=now.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __sklearn_is_fitted__(self) -> bool:
        return all(getattr(self, name).numel() for name in self.late if hasattr(self, name))

    def _unfitted(self) -> Exception:
        """The error of one that was not set: scikit-learn's own, where that is in use."""
        known = sys.modules.get("sklearn.exceptions")
        return (known.NotFittedError if known else ValueError)(f"{type(self).__name__}: call fit before it is used")

    def __sklearn_tags__(self):
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))
