"""What all methods share: a module that shows its arguments and holds parameters, nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from normkit.catalog import Card


class Norm(nn.Module):
    """The base of the catalogue's modules.

    ``arguments`` are the values that the module was built with; ``repr`` prints them all, so that a dialect (where
    eps sits, what the gain is added to) can be read off a printed model.
    """

    card: ClassVar[Card]
    arguments: dict[str, Any]

    def extra_repr(self) -> str:
        """Write the arguments as they would be typed."""
        (first, value), *rest = list(self.arguments.items()) or [("", None)]
        takes = next(iter(self.card.signature.parameters.values()), None)
        positional = takes is not None and takes.kind is takes.POSITIONAL_OR_KEYWORD
        shown = [repr(value) if positional else f"{first}={value!r}"] if first else []
        return ", ".join(shown + [f"{key}={value!r}" for key, value in rest])
