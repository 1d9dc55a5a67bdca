"""Take from each client's gradients what is its own, by control variates, and average.

SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, arXiv 1910.06378.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.federated import _states
from normkit.federated.rounds import Extras, Instructions, Local, State, Strategy, Update, alike

CONTROL = "control"  # the role of what a client's control variate has changed by


def correction(
    weights: State, sent: State, memory: Mapping[str, Any], kept: State, *, clients: int | None = None
) -> dict[str, Tensor]:
    """What a client adds to its gradients: the server's control variate less its own, c - c_k."""
    control, zeros = memory.get(CONTROL, {}), {name: torch.zeros_like(value) for name, value in weights.items()}
    return {name: control.get(name, zero).to(zero) - kept.get(name, zero).to(zero) for name, zero in zeros.items()}


def controls(
    gradients: State, kept: State, *, clients: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Mapping[str, Tensor]]]:
    """What a client keeps, and what it sends besides: its new control variate, and by how much that has changed.

    The new one is the mean of its own gradients over its steps. For plain gradient descent at rate r that is the
    paper's second choice, c_k - c + (sent - w) / (steps r), and for any other optimizer what that stands for.
    """
    new = {name: value.clone() for name, value in gradients.items()}
    return new, {CONTROL: {name: value - kept.get(name, 0) for name, value in new.items()}}


def together(
    updates: Sequence[Update], sent: State, memory: dict[str, Any], *, clients: int | None = None
) -> dict[str, Tensor]:
    """Average the clients alike, and add to the server's control variate the clients' changes over all ``clients``.

    So it stays the mean of all clients' own, of which those not seen yet are 0. Without ``clients`` it is that of all
    that were ever seen.
    """
    if clients is None:
        memory["seen"] = list(dict.fromkeys([*memory.get("seen", ()), *(update.client for update in updates)]))
        clients = max(len(updates), len(memory["seen"]), memory.get("clients", 0))
    count = check.size("scaffold", "clients", clients, least=len(updates))
    share = memory.get("clients", count) / count  # that the sum so far is of, where further clients have come
    control = {name: value * share for name, value in memory.get(CONTROL, {}).items()}
    for name in updates[0].more[CONTROL]:
        change = _states.total(torch.stack([update.more[CONTROL][name] for update in updates])) / count
        control[name] = control.get(name, torch.zeros_like(change)) + change
    memory["clients"] = count
    memory[CONTROL] = control
    return alike(updates, sent)


def of_the_server(memory: Mapping[str, Any], client: Any, *, clients: int | None = None) -> Instructions:
    """What clients of other processes are told: the server's control variate, once there is one."""
    return Instructions({CONTROL: memory[CONTROL]}) if CONTROL in memory else Instructions()


PLAN = Strategy(
    together,
    wanted=Extras(more=(CONTROL,), records=(CONTROL,)),
    takes=("clients",),
    remembers=True,
    told=of_the_server,
    local=Local(correction, controls),
)
