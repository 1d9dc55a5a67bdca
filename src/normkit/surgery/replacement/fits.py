"""Which norms can stand in a model, and how their input is laid out there: by their cards alone, nothing is built.

A stream of vectors is (B, T, C). A norm of (N, C, *) takes its tokens as samples; one of (T, N, C) takes it turned. A
statistic over samples or over time takes in tokens that come later, which a model that predicts them must not see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit import catalog
from normkit.catalog import Card
from normkit.kinds import NORM
from normkit.surgery.edits.layers import CHANNELS_LAST, PLAIN, TOKENS, TURNED, Laid

STREAM, IMAGES = "a stream of vectors, (B, T, C)", "images, (N, C, H, W)"
ROWS = "rows of features, (N, C)"
MATRICES = "positive definite matrices, (N, n, n)"
WAYS = {
    STREAM: {"... C": PLAIN, "N T C": PLAIN, "T N C": TURNED, "N C *": TOKENS},
    IMAGES: {"... C": CHANNELS_LAST},  # and all that are laid out as images
    ROWS: {"... C": CHANNELS_LAST, "N C": PLAIN, "N C *": PLAIN},
    MATRICES: {"N C C : definite": PLAIN},
}


class Place(NamedTuple):
    """Where a norm is to stand: what its input is, and whether the model predicts tokens from those before."""

    inputs: str
    causal: bool = False


def build(choice: catalog.Choice, way: str, width: int) -> nn.Module:
    """Build a norm as it stands in a place; its random numbers are drawn apart from those of the layers around it."""
    with torch.random.fork_rng(devices=[]):
        norm = choice.create(*[width] * takes_width(choice.card))
    if way == TOKENS and getattr(norm, "num_groups", None) == width:
        name = choice.card.name
        raise ValueError(
            f"norm {name!r} has num_groups={width} of {width} features: of {STREAM}, a group is one number, and its "
            f"variance 0; take fewer, such as {name}:num_groups={max(1, width // 8)}"
        )
    return norm if way == PLAIN else Laid(norm, way)


def maker(norm: str, channels_first: bool = False) -> Callable[[int], nn.Module]:
    """Return a function of the width that builds a norm of the catalogue for (B, T, C), or for (N, C, ...).

    The norm's own random numbers are drawn apart, so that those of the layers around it stay the same for every norm.
    """
    choice = catalog.find(norm)
    way = require(choice, Place(IMAGES if channels_first else STREAM))
    return functools.partial(build, choice, way)


def way_of(card: Card, inputs: str, names: Collection[str] = ()) -> str | None:
    """Return how a norm stands in a place, built from its width and the arguments ``names``; None if it does not."""
    needs_more = any(not layout.optional for layout in card.inputs.values())
    if card.kind is not NORM or needs_more or lacking(card, names) or (card.room == "manifold" and inputs != MATRICES):
        return None
    if inputs == IMAGES and card.shape.image:
        return PLAIN
    if inputs in (STREAM, ROWS) and card.shape == "N C *" and card.over == "*":  # over space, of which a token has none
        return None
    return WAYS[inputs].get(card.shape)


def takes_width(card: Card) -> bool:
    """Whether a norm is built from a width; a few of vectors need none."""
    first = next(iter(card.signature.parameters.values()), None)
    return first is not None and first.default is first.empty and first.kind is first.POSITIONAL_OR_KEYWORD


def lacking(card: Card, names: Collection[str]) -> list[str]:
    """Return the arguments that must be given beside the width and are not."""
    others: list[Any] = [*card.signature.parameters.values()][takes_width(card) :]
    required = [p for p in others if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return [p.name for p in required if p.name not in names]


def leaks(card: Card) -> bool:
    """Whether a statistic takes in other tokens: one over samples, over time, or over all that there is."""
    return bool({"N", "T", "..."} & set(card.over.axes))


def fitting(cards: Iterable[Card], places: Collection[Place], allow_leak: bool = False) -> list[Card]:
    """Return the norms that fit all places."""
    return [card for card in cards if all(stands(card, place, allow_leak) for place in places)]


def stands(card: Card, place: Place, allow_leak: bool = False) -> bool:
    """Whether a norm can stand in a place."""
    return way_of(card, place.inputs) is not None and (allow_leak or not place.causal or not leaks(card))


def require(choice: catalog.Choice, place: Place, allow_leak: bool = True, remedy: str = "") -> str:
    """Return how a norm stands in a place; refuse one that does not, or that sees a future it must not see.

    remedy: ends the refusal of the latter.
    """
    card, names = choice.card, tuple(choice.arguments)
    way = way_of(card, place.inputs, names)
    if way is None:
        missing = lacking(card, names) if card.kind is NORM else []
        reason = f"it needs {card.name}:{missing[0]}=..." if missing else f"its input is {card.shape}"
        reason = reason if card.kind is NORM else f"it is no norm, but a {card.kind.name}"
        usable = ", ".join(other.name for other in fitting(norms(place.inputs), [place], allow_leak))
        raise ValueError(f"norm {card.name!r} does not fit {place.inputs}: {reason}; those that do: {usable}")
    if place.causal and not allow_leak:
        require_causal(card, remedy)
    over_tokens = "N" in card.over.axes and choice.arguments.get("channels_last", False)  # takes them as they are
    return PLAIN if way == TOKENS and over_tokens else way


def require_causal(card: Card, remedy: str = "") -> None:
    """Refuse a norm by which tokens that are to be predicted would be seen."""
    if leaks(card):
        raise ValueError(
            f"norm {card.name!r} leaks: its statistic over {card.over} takes in tokens that are still to be predicted"
            f"{remedy}"
        )


@functools.cache
def norms(inputs: str = STREAM) -> list[Card]:
    """Return the cards of all norms of the one room that they are in, so that no other is imported, and of packages."""
    return catalog.of_kind(NORM, "manifold" if inputs == MATRICES else None)
