"""Average states learned from labels, and those from pseudo-labels by their number; then both.

The parts are ``fedlabel-select``, ``fedlabel-loss`` and ``fedlabel-aggregate``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.federated import _states
from normkit.federated.fedlabel_aggregate import fedlabel_aggregate
from normkit.federated.rounds import PSEUDO, Extras, State, Strategy, Update


def labelled_and_not(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedLabel: states learned from labels, all alike, and from pseudo-labels, by their number; then both."""
    names = tuple(sent)
    branches = [_states.stack([update.state for update in updates])]
    branches.append(_states.stack([{**update.state, **update.more[PSEUDO]} for update in updates]))
    number = torch.tensor([float(update.numbers["pseudo-labels"]) for update in updates], dtype=torch.float64)
    values = [branch[name] for branch in branches for name in names]
    return dict(zip(names, fedlabel_aggregate(*values, number, entries=names), strict=True))


PLAN = Strategy(
    labelled_and_not,
    ("fedlabel-select", "fedlabel-loss", "fedlabel-aggregate"),
    wanted=Extras(more=(PSEUDO,), numbers=("pseudo-labels",)),
)
