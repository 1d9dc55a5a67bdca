"""The norm within a module that is a whole with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from normkit import catalog
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Match
from normkit.surgery.recognition.search import examine


class Within(NamedTuple):
    """A norm within: its place, and what it is."""

    place: str
    match: Match

    @property
    def card(self) -> catalog.Card:
        """The card of what it is."""
        return catalog.card(str(self.match.name))

    @property
    def width(self) -> int | None:
        """What it is made for; None where nothing tells."""
        argument = self.card.width
        return None if argument is None else self.match.kwargs.get(argument.name)

    @property
    def words(self) -> str:
        """The norm as another method takes it, with the arguments that are not its defaults."""
        parameters = self.card.signature.parameters
        width = next(iter(parameters))
        own = [f"{k}={v}" for k, v in self.match.kwargs.items() if k != width and v != parameters[k].default]
        return ":".join([str(self.match.name), *([",".join(sorted(own))] if own else [])])

    def carried(self, at: str) -> dict[str, str]:
        """The tensors of the norm that another method has at a place, and the module's that they take."""
        return {f"{at}.{ours}": f"{self.place}.{theirs}" for ours, theirs in self.match.carried.items()}


def norms_within(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts that may be norms: those with vectors and no matrices."""
    for place, part in module.named_children():
        vectors = specimen.tensors(part).values()
        if vectors and all(specimen.long_axes(t) < 2 for t in vectors):
            yield place, part


def only_norm(module: nn.Module, width: int) -> Within | None:
    """The norm within, where there is one alone and it is of a width."""
    matches = [(place, examine(part)) for place, part in norms_within(module)]
    norms = [Within(place, match) for place, match in matches if match]
    return norms[0] if len(norms) == 1 and norms[0].width == width else None
