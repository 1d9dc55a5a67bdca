"""Average; each client is drawn back to what was sent, by a term of its loss.

FedProx: mu/2 |w - sent|^2 beside each client's loss, whose gradient is mu (w - sent). arXiv 1812.06127.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from normkit.federated.rounds import Instructions, Local, State, Strategy, average

MU = 0.01


def back(weights: State, sent: State, memory: Mapping[str, Any], kept: State, *, mu: float = MU) -> dict[str, Tensor]:
    """What a client adds to its gradients: mu times the way that it has come."""
    return {name: mu * (value - sent[name].to(value)) for name, value in weights.items()}


def together(updates: Any, sent: State, *, mu: float = MU) -> dict[str, Tensor]:
    """Average by sample counts."""
    return average(updates, sent)


def strength(memory: Mapping[str, Any], client: Any, *, mu: float = MU) -> Instructions:
    """What clients of other processes are told."""
    return Instructions(numbers={"mu": mu})


PLAN = Strategy(together, takes=("mu",), told=strength, local=Local(back))
