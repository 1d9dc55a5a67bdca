"""Average each row of the classifier by the clients' shares of its class, what else there is by samples.

The parts are ``classwise-average``, ``classifier-norm-reset`` and ``norm-transfer``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from normkit.federated.classwise_average import classwise_average
from normkit.federated.rounds import Extras, State, Strategy, Update, average


def by_class(updates: Sequence[Update], sent: State, *, classifier: Collection[str]) -> dict[str, Tensor]:
    """FedLoGe: rows of the classifier by each client's share of the class, what else there is by samples."""
    joined = average(updates, sent)
    count = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    classes = torch.tensor([update.numbers["classes"] for update in updates], dtype=torch.float64)
    for name in classifier:
        value = torch.stack([update.state[name] for update in updates])
        rows = value if value.dim() > 2 else value.reshape(*value.shape[:2], -1)
        [mean] = classwise_average(rows, count, classes, entries=(name,))
        joined[name] = mean.reshape(sent[name].shape)
    return joined


PLAN = Strategy(
    by_class,
    ("classwise-average", "classifier-norm-reset", "norm-transfer"),
    wanted=Extras(numbers=("classes",)),
    needs=("classifier",),
)
