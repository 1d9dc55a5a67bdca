"""Take the average of the clients' ways for a gradient, and a step of Adam along it.

FedAdam, of Adaptive Federated Optimization, arXiv 2003.00295.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.federated.rounds import State, Strategy, Update, average


def adam(
    updates: Sequence[Update],
    sent: State,
    memory: dict[str, Any],
    *,
    parameters: Collection[str],
    lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
) -> dict[str, Tensor]:
    """With d the average way of the clients from what was sent,

        m <- beta1 m + (1 - beta1) d,    v <- beta2 v + (1 - beta2) d^2,    w <- w + lr m / (sqrt(v) + tau)

    from m = 0 and v = tau^2, without a correction of the first steps, as in the paper. What is not among the
    ``parameters``, such as running statistics, is averaged.
    """
    for name, value in (("lr", lr), ("tau", tau)):
        check.number("fedadam", name, value, 0.0, open_low=True)
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        check.number("fedadam", name, value, 0.0, 1.0)
    state = dict(average(updates, sent))
    for name in parameters:
        start = sent[name].double()
        way = state[name].double() - start
        m, v = memory.get(name, (torch.zeros_like(way), torch.full_like(way, tau**2)))
        m, v = beta1 * m + (1 - beta1) * way, beta2 * v + (1 - beta2) * way.square()
        memory[name] = (m, v)
        state[name] = (start + lr * m / (v.sqrt() + tau)).to(sent[name].dtype)
    return state


PLAN = Strategy(adam, needs=("parameters",), takes=("lr", "beta1", "beta2", "tau"), remembers=True)
