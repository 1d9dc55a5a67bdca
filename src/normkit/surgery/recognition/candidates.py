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

FIRST = ("rmsnorm", "layernorm", "batchnorm", "instancenorm", "groupnorm", "layernorm2d", "grouped-rmsnorm")
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
        return [n for n in stabilizers if n not in self.arguments] + self.told

    @property
    def told(self) -> list[str]:
        """Those of them that the card names."""
        return [name for name, values in self.card.dialects.items() if values == "any"]


@cache
def cards() -> tuple[Card, ...]:
    """The norms that take one tensor, or further ones of the same shape; the frequent ones first."""
    found = [catalog.card(name) for name in catalog.methods(room="activation")]
    usable = [card for card in found if card.kind is NORM and _takes_activations(card)]
    return tuple(sorted(usable, key=lambda card: FIRST.index(card.name) if card.name in FIRST else len(FIRST)))


def _takes_activations(card: Card) -> bool:
    channels = card.shape.channels is not None and card.shape.floating
    return channels and all(layout.optional or layout == card.shape for layout in card.inputs.values())


def candidates(extent: tuple[int, ...], last: bool, further: int, numbers: Sequence[int]) -> Iterator[Candidate]:
    """The methods that take such vectors, in all their dialects; ``numbers`` are those that the module itself holds."""
    for card in cards():
        if _fits(card, extent, last, further):
            yield from _dialects(card, extent, last, numbers)


def _fits(card: Card, extent: tuple[int, ...], last: bool, further: int) -> bool:
    needed = sum(not layout.optional for layout in card.inputs.values())
    several = sum(layout == card.shape for layout in card.inputs.values())
    if not needed <= further <= several:
        return False
    if len(extent) > 1:
        width = card.width
        return last and card.shape == "... C" and width is not None and "Sequence" in str(width.annotation)
    return last == card.shape.features_last or "channels_last" in card.signature.parameters


def _dialects(card: Card, extent: tuple[int, ...], last: bool, numbers: Sequence[int]) -> Iterator[Candidate]:
    width = card.width
    fixed: dict[str, Any] = {} if width is None else {width.name: extent[0] if len(extent) == 1 else extent}
    choices: dict[str, Sequence[Any]] = {}
    takes = card.signature.parameters
    for name in ("affine", "bias", "track_running_stats", "apply_act"):
        if name in takes and isinstance(takes[name].default, bool):
            choices[name] = (True, False)
    if "channels_last" in takes:
        fixed["channels_last"] = last
    for name in ("num_groups", "group_size"):
        if name in takes:
            choices[name] = divisors(math.prod(extent), numbers)
    for name, values in card.dialects.items():
        if values != "any" and name != "cast":
            choices[name] = values
    for name, value in card.example.items():
        if name not in choices and name not in fixed and not callable(value):
            fixed[name] = value
    for values in itertools.product(*choices.values()):
        arguments = {**fixed, **dict(zip(choices, values, strict=True))}
        if arguments.get("affine") is False and arguments.pop("bias", False):
            continue  # the same as without
        yield Candidate(card, arguments)


def divisors(size: int, numbers: Sequence[int] = ()) -> tuple[int, ...]:
    """The numbers of groups that a width can have, those that a module names first.

    >>> divisors(12, [8, 3])
    (3, 1, 12, 2, 4, 6)
    """
    found = [n for n in range(1, size + 1) if size % n == 0 and (n <= 64 or n == size or n in numbers)]
    named = [n for n in numbers if n in found]
    return tuple(dict.fromkeys([*named, 1, size, *found]))


def carryings(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[dict[str, str]]:
    """The ways in which a module's tensors can be a method's, by size, the likely ones by name first."""
    fitting = [[t for t in theirs if _sized(theirs[t], ours[o])] for o in ours]
    if not all(fitting) or len(ours) > 6:
        return []
    found = (
        dict(zip(ours, chosen, strict=True))
        for chosen in itertools.islice(itertools.product(*fitting), 4096)
        if len(set(chosen)) == len(chosen)
    )
    ranked = sorted(found, key=lambda way: -sum(_alike(o, t) for o, t in way.items()))
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
