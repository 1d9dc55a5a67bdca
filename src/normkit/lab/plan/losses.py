"""Losses of scores and labels, by name: cross-entropy with its options, and those of the catalogue."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog
from normkit.choice import parsed
from normkit.kinds import Loss
from normkit.kinds.arguments import near

PLAIN = "cross-entropy"
OPTIONS = ("label_smoothing",)
LABELS = "N : index C"
HIDDEN = -100  # the label of what is not to be learned, as in torch

Of = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]  # a model and a batch to scores (N, C) and labels (N,)
Objective = Callable[[nn.Module, Any], Tensor]


def loss_for(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of scores (N, C) and labels (N,) that a name stands for."""
    plain, arguments = parsed(name)
    if plain == PLAIN:
        unknown = set(arguments) - set(OPTIONS)
        if unknown:
            raise ValueError(f"loss {name!r}: {PLAIN} takes {', '.join(OPTIONS)}, not {', '.join(sorted(unknown))}")
        return functools.partial(F.cross_entropy, **arguments)
    choice = _find(name)
    if not fits(choice.card, tuple(choice.arguments)):
        usable = ", ".join(_usable())
        raise ValueError(f"loss {choice.card.name!r} is not one of scores and labels alone; those that are: {usable}")
    loss = choice.create()
    if loss.state_dict():
        kept = ", ".join(loss.state_dict())
        raise ValueError(f"loss {choice.card.name!r} keeps a state of its own ({kept}), which no run would learn")
    return loss


def _find(name: str) -> catalog.Choice:
    """Find a method; a name near a loss that can be taken is not compared with others."""
    try:
        return catalog.find(name)
    except ValueError:
        if close := near(parsed(name)[0].lower(), _usable()):
            raise ValueError(f"no loss {name!r}; did you mean {' or '.join(map(repr, close))}?") from None
        raise


def _usable() -> list[str]:
    return [PLAIN, *(card.name for card in catalog.members(Loss.kind) if fits(card))]


def fits(card: catalog.Card, arguments: tuple[str, ...] = ()) -> bool:
    """Whether a method is a loss of scores and labels, and is built from these ``arguments`` alone."""
    needed = [str(layout) for layout in card.inputs.values() if not layout.optional]
    required = [p.name for p in card.signature.parameters.values() if p.default is inspect.Parameter.empty]
    alone = card.kind is Loss.kind and card.shape == "N C" and needed == [LABELS]
    return alone and all(name in arguments for name in required)


def cross_entropy(scored: Of) -> Objective:
    """Return what all variants are compared by: the plain cross-entropy, in nats."""
    return lambda model, batch: F.cross_entropy(*scored(model, batch))


def objective(name: str, scored: Of) -> Objective:
    """Return what a variant with a loss of its own is trained to lower, on the labels that are to be learned."""
    criterion = loss_for(name)

    def loss(model: nn.Module, batch: Any) -> Tensor:
        scores, labels = scored(model, batch)
        mask = labels != HIDDEN
        return criterion(scores[mask], labels[mask]) if not torch.all(mask) else criterion(scores, labels)

    return loss
