"""What a whole flow is to be, and how it is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import nn

from normkit import catalog, check


class FlowSizes(NamedTuple):
    """The sizes of a flow that is to be built.

    ``event`` is the shape of a sample, ``numbers`` how many numbers its parts see, ``classes`` how many labels,
    ``depth`` how many parts there are, ``hidden`` how wide their networks.
    """

    event: tuple[int, ...]
    numbers: int
    classes: int
    depth: int
    hidden: int

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.event[0]


class Recipe(NamedTuple):
    """A whole flow: how its parts are built, how deep it is by default, and of what.

    ``build`` takes :class:`FlowSizes` and the flow's own options. ``depth`` is the default.
    ``axes``: of how many axes an event may be.
    ``context``, ``labels``: whether its parts see numbers, or labels, that are given. ``small``: options of a smallest
    instance, on which it is tested.
    """

    build: Callable[..., list[nn.Module]]
    depth: int
    axes: tuple[int, ...] = (1,)
    context: bool = False
    labels: bool = False
    small: Mapping[str, Any] = {}


def refuse_others(options: Iterable[str], names: Iterable[str]) -> None:
    """Refuse an option that a flow does not take."""
    for name in options:
        check.choice("flow", "an option", name, tuple(names))


def options_of(build: Callable[..., object]) -> list[str] | None:
    """The names of a builder's options; None where its parts look at them."""
    parameters = list(inspect.signature(build).parameters.values())[1:]
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else [p.name for p in parameters]


def patches(sizes: FlowSizes, patch: int | None) -> tuple[int, int, int | None]:
    """How many tokens there are, how many numbers are in one, and the side of a patch; None of vectors."""
    if len(sizes.event) == 1:
        return sizes.dim, 1, None
    channels, height, width = sizes.event
    patch = check.size("flow", "patch", 2 if patch is None else patch)
    for name, size in (("height", height), ("width", width)):
        check.divides("flow", "patch", patch, name, size)
    return height * width // patch**2, channels * patch**2, patch


def field(name: str) -> Callable[..., list[nn.Module]]:
    """Build a velocity field of the catalogue."""

    def build(sizes: FlowSizes, **options: object) -> list[nn.Module]:
        return [catalog.create(name, sizes.dim, hidden=sizes.hidden, **options) for _ in range(sizes.depth)]

    return build
