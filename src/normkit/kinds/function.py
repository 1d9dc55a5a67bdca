"""Methods that are plain functions of scores, states or strings, and estimators that are set from data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from normkit import check
from normkit.kinds.arguments import bind
from normkit.kinds.arrays import takes_arrays
from normkit.kinds.kind import FUNCTION_LINES, Kind

if TYPE_CHECKING:
    from normkit.catalog import Card


@dataclass(frozen=True)
class FunctionKind(Kind):
    """A function: what it is called with is positional, its options are keywords."""

    def signature(self, entry: Any) -> inspect.Signature:
        """The options."""
        whole = inspect.signature(entry)
        return whole.replace(
            parameters=[p for p in whole.parameters.values() if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)],
            return_annotation=inspect.Signature.empty,
        )

    def entered(self, entry: Any) -> Any:
        """The function, which takes NumPy arrays as well."""
        return takes_arrays(entry)

    def draw(self, card: Card, *args: Any, **kwargs: Any) -> list[Any]:
        """Draw the inputs of one call; there may be none."""
        return super().draw(card, *args, **kwargs) if self.takes(card) else []

    def create(self, card: Card, *args: Any, **kwargs: Any) -> Any:
        """Bind the options, by name or in their order; an array is no option but an input, and refused."""
        signature = self.signature(card.entry)
        options = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        is_call = any(hasattr(check.plain(value), "__array__") for value in args)
        order = {} if is_call else {"in order": " ".join(options)}
        return Bound(card.entry, **bind(card.name, signature, args, kwargs, order).kwargs)

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """The call, its options as keywords."""
        typed = ", ".join(filter(None, [inputs, arguments]))
        named = ", ".join(filter(None, [f'"{card.name}"', arguments]))
        call = f"y = nk.{card.entry.__name__}({typed})"
        return f"bound = nk.create({named})  # by name, with its options set once\n{call}"

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        parameters = inspect.signature(card.entry).parameters.values()
        return [p.name for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]


class Bound(functools.partial):
    """A function with its options bound; a function beside it is found on it, with those of the options that it has."""

    def __getattr__(self, name: str) -> Any:
        other = vars(self.func).get("beside", {}).get(name)
        if other is None:
            raise AttributeError(f"{self.func.__name__} has no {name!r} beside it")
        known = inspect.signature(other).parameters
        return functools.partial(other, **{key: value for key, value in self.keywords.items() if key in known})


def beside(method: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function beside a method that is one: ``nk.create(name, ...).other`` is it, with the same options."""

    def enter(other: Callable[..., Any]) -> Callable[..., Any]:
        other = takes_arrays(other)
        vars(method).setdefault("beside", {})[other.__name__] = other
        return other

    return enter


FUNCTION = FunctionKind("function", "function", "inference", FUNCTION_LINES)
ESTIMATOR = Kind("estimator", "estimator", "inference", {})


class Estimator:
    """Something that is set from data, ``fit(...)``, and then called or asked; it remembers what it was built with."""

    kind: ClassVar[Kind] = ESTIMATOR
    card: ClassVar[Card]
