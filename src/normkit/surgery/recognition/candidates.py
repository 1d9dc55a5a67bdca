"""What the catalogue can explain a module with: its norms, each in the dialects that its card names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.catalog import Card
from normkit.kinds import NORM
from normkit.surgery.recognition.inputs import Shape

FIRST = ("rmsnorm", "layernorm", "batchnorm", "instancenorm", "groupnorm", "layernorm2d", "grouped-rmsnorm")
OF_GAIN = ("gain_first", "heads")  # what is of no use without a gain
MOST = 12  # ways of giving a module's tensors to a method's that are tried
NAMES = (
    ("weight", "gamma", "scale", "gain", "g", "w", "a_2", "a", "weight_g"),
    ("bias", "beta", "shift", "b", "b_2", "offset"),
    ("running_mean", "moving_mean", "mean", "mu"),
    ("running_var", "moving_variance", "moving_var", "var", "sigma"),
)


@dataclass(frozen=True)
class Candidate:
    """A method, and the arguments that build it, but for the constants that are still to be solved for."""

    card: Card
    arguments: Mapping[str, Any]

    def build(self, **more: Any) -> nn.Module:
        """Build it in float64."""
        with torch.random.fork_rng(devices=[]):
            return self.card.entry(**{**self.arguments, **more}).double()

    @property
    def constants(self) -> list[str]:
        """The arguments that are numbers to be solved for: stabilizers, and what the card says."""
        takes = self.card.signature.parameters
        stabilizers = [n for n in takes if n.endswith("eps") and isinstance(takes[n].default, float)]
        return [n for n in stabilizers if n not in self.arguments] + self.of_card

    @property
    def of_card(self) -> list[str]:
        """Those of them that the card names."""
        return [name for name, values in self.card.dialects.items() if values == "any"]


@cache
def cards() -> tuple[Card, ...]:
    """The norms that take one tensor, or further ones of the same shape; the frequent ones first."""
    usable = [card for card in catalog.of_kind(NORM) if _takes_activations(card)]
    return tuple(sorted(usable, key=lambda card: FIRST.index(card.name) if card.name in FIRST else len(FIRST)))


def _takes_activations(card: Card) -> bool:
    channels = card.shape.channels is not None and card.shape.floating
    return channels and all(layout.optional or layout == card.shape for layout in card.inputs.values())


def candidates(shape: Shape, further: int, numbers: Sequence[int], matrices: bool = False) -> Iterator[Candidate]:
    """The methods that take such vectors, in all their dialects; ``numbers`` are those that the module itself holds.

    matrices: it takes no more axes than two, of which the last is the second: a method's own order of axes will do.
    """
    for card in cards():
        if _fits(card, shape, further, matrices):
            yield from _dialects(card, shape, numbers)


def _fits(card: Card, shape: Shape, further: int, matrices: bool) -> bool:
    _, last, extent, apart = shape
    needed = sum(not layout.optional for layout in card.inputs.values())
    several = sum(layout == card.shape for layout in card.inputs.values())
    if not needed <= further <= several:
        return False
    if len(extent) > 1:
        width = card.width
        several = card.shape == "... C" and width is not None and "Sequence" in str(width.annotation)
        return last and several and (not apart or "heads_first" in card.signature.parameters)
    return last == card.shape.features_last or ("channels_last" in card.signature.parameters and not matrices)


def _dialects(card: Card, shape: Shape, numbers: Sequence[int]) -> Iterator[Candidate]:
    choices = _choices(card, shape.extent, numbers)
    fixed: dict[str, Any] = {"channels_last": shape.last} if "channels_last" in card.signature.parameters else {}
    fixed |= {"heads_first": True} if shape.apart else {}
    for name, value in card.example.items():
        if name not in choices and name not in fixed and not callable(value):
            fixed[name] = value
    for widths, values in itertools.product(_widths(card, shape), itertools.product(*choices.values())):
        arguments = {**widths, **fixed, **dict(zip(choices, values, strict=True))}
        plain = arguments.get("affine") is False
        if plain and (arguments.pop("bias", False) or any(arguments.get(name) for name in OF_GAIN)):
            continue  # the same as without
        yield Candidate(card, arguments)


def _choices(card: Card, extent: tuple[int, ...], numbers: Sequence[int]) -> dict[str, Sequence[Any]]:
    """The arguments of a method that are tried, and with which values."""
    takes = card.signature.parameters
    choices: dict[str, Sequence[Any]] = {}
    for name in ("affine", "bias", "track_running_stats", "apply_act"):
        if name in takes and isinstance(takes[name].default, bool):
            choices[name] = (True, False)
    for name in ("num_groups", "group_size"):
        if name in takes:
            choices[name] = divisors(math.prod(extent), numbers)
    for name, values in card.dialects.items():
        if values != "any" and name != "cast":
            choices[name] = values
    return choices


def _widths(card: Card, shape: Shape) -> list[dict[str, Any]]:
    """The sizes that make a method one of such an extent: of all of it, or of a vector for each of some heads."""
    if card.width is None:
        return [{}]
    name, extent = card.width.name, shape.extent
    widths = [] if shape.apart else [{name: extent[0] if len(extent) == 1 else extent}]
    if len(extent) == 2 and "heads" in card.signature.parameters:
        widths.append({name: extent[1], "heads": extent[0]})
    return widths


def divisors(size: int, numbers: Sequence[int] = ()) -> tuple[int, ...]:
    """The numbers of groups that a width can have, those that a module names first.

    >>> divisors(12, [8, 3])
    (3, 1, 12, 2, 4, 6)
    """
    factors = [n for n in range(1, size + 1) if size % n == 0 and (n <= 64 or n == size or n in numbers)]
    named = [n for n in numbers if n in factors]
    return tuple(dict.fromkeys([*named, 1, size, *factors]))


def carryings(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[dict[str, str]]:
    """The ways in which a module's tensors can be a method's, by size, the likely ones by name first."""
    fitting = [[t for t in theirs if _sized(theirs[t], ours[o])] for o in ours]
    if not all(fitting) or len(ours) > 6:
        return []
    assignments = (
        dict(zip(ours, names, strict=True))
        for names in itertools.islice(itertools.product(*fitting), 4096)
        if len(set(names)) == len(names)
    )
    ranked = sorted(assignments, key=lambda way: -sum(_alike(o, t) for o, t in way.items()))
    return ranked[:MOST]


def _sized(theirs: Tensor, ours: Tensor) -> bool:
    return theirs.numel() == ours.numel() and _without_ones(theirs) == _without_ones(ours)


def _without_ones(tensor: Tensor) -> tuple[int, ...]:
    return tuple(n for n in tensor.shape if n != 1)


def _alike(ours: str, theirs: str) -> int:
    word = theirs.rpartition(".")[2].lower()
    if word == ours:
        return 3
    group = next((names for names in NAMES if ours in names), ())
    return 2 if word in group else 0
