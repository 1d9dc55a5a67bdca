"""Learn the shares of the clients, and how far their sum shrinks, on the server's batches.

The parts are ``fedlaw`` and ``fedlaw-aggregate``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit.federated import fedlaw
from normkit.federated.rounds import State, Strategy, Update, average


def learned(
    updates: Sequence[Update],
    sent: State,
    *,
    loss: Callable[[State, Any], Tensor],
    batches: Iterable[Any],
    parameters: Collection[str],
    **options: Any,
) -> dict[str, Tensor]:
    """FedLAW: shares of the clients, and how far their sum shrinks, learned on the server's batches.

    What is not among the ``parameters`` is averaged; where the loss calls the model in training, as the authors do, its
    batch norms then go on from there on the server's batches.
    """
    together = {name: value.clone() for name, value in average(updates, sent).items()}

    def of_all(state: State, batch: Any) -> Tensor:
        return loss({**together, **state}, batch)

    own = [{name: update.state[name] for name in parameters} for update in updates]
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    solution = fedlaw.learn(own, counts, of_all, batches, **options).state
    return {**together, **{name: value.to(sent[name].dtype) for name, value in solution.items()}}


PLAN = Strategy(
    learned,
    ("fedlaw", "fedlaw-aggregate"),
    needs=("loss", "batches", "parameters"),
    takes=("function", "optimizer", "lr", "epochs"),
)
