"""Methods that are plain functions of scores, states or strings, and estimators that are set from data."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from normkit.kinds.arguments import bind
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

    def create(self, card: Card, *args: Any, **kwargs: Any) -> Any:
        """Bind the options."""
        return functools.partial(card.entry, **bind(card.name, self.signature(card.entry), args, kwargs).kwargs)

    def use(self, card: Card, given: str, inputs: str) -> str:
        """The call, its options as keywords."""
        typed = ", ".join(filter(None, [inputs, given]))
        named = ", ".join(filter(None, [f'"{card.name}"', given]))
        return f"bound = nk.create({named})  # the options bound\ny = nk.{card.entry.__name__}({typed})"

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        parameters = inspect.signature(card.entry).parameters.values()
        return [p.name for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]


FUNCTION = FunctionKind("function", "function", "inference", FUNCTION_LINES)
ESTIMATOR = Kind("estimator", "estimator", "inference", {})


class Estimator:
    """Something that is set from data, ``fit(...)``, and then called or asked; it remembers what it was built with."""

    kind: ClassVar[Kind] = ESTIMATOR
    card: ClassVar[Card]
