"""Average each number over the clients to which it is shared.

The parts are ``fedselect-grow``, ``fedselect-step`` and ``fedselect-aggregate``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.federated import _states
from normkit.federated.fedselect_aggregate import fedselect_aggregate
from normkit.federated.rounds import MASK, Extras, State, Strategy, Update


def where_shared(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedSelect: each number over the clients to which it is shared; where nobody shares it stays as it was sent."""
    names = tuple(sent)
    masked = tuple(name for name in names if all(name in update.more[MASK] for update in updates))
    stacked = _states.stack([update.state for update in updates])
    masks = [torch.stack([update.more[MASK][name] for update in updates]) for name in masked]
    values = [stacked[name] for name in names]
    means = fedselect_aggregate(*values, *masks, entries=names, masked=masked)[: len(masked)]
    alone = {name: (mask != 0).all(0) for name, mask in zip(masked, masks, strict=True)}
    shared = {name: torch.where(alone[name], sent[name], v) for name, v in zip(masked, means, strict=True)}
    return {**sent, **shared}


PLAN = Strategy(
    where_shared,
    ("fedselect-grow", "fedselect-step", "fedselect-aggregate"),
    wanted=Extras(more=(MASK,), records=(MASK,)),
)
