"""Class-wise average: each row of a classifier averaged by who has seen its class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import counts, mean, read, total
from normkit.ops.sums import in_type

NAME = "classwise-average"


@method(
    NAME,
    paper="FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data (Xiao et al., 2024), "
    "arXiv 2401.08977",
    shape="K C I",
    over="K",
    inputs={"bias": "K C", "count": "K : unit", "classes": "K C : unit"},
    example={"entries": ("weight", "bias")},
)
def classwise_average(*states: Tensor, entries: Sequence[str]) -> tuple[Tensor, ...]:
    """Average classifiers row by row, each client by its samples and by its share of that row's class.

    For long-tailed classes spread over clients: who has never seen a class does not wash out its row.

        a_kc = (n_k / sum_j n_j) (m_kc / sum_j m_jc),    entry_c = sum_k a_kc entry_kc / sum_k a_kc

    A class that nobody has gets the average by sample counts.

    Args:
        states: for each entry the clients', stacked (K, C, ...), then sample counts n (K,) and class counts m (K, C).
        entries: the names, in order.

    Returns one state, one tensor an entry.

    FedLoGe (Xiao et al., 2024), arXiv 2401.08977.
    """
    tensors, [count, classes] = read(NAME, states, {"": entries}, ("count", "classes"))
    clients = len(states[0])
    share = counts(NAME, "count", count, clients).unsqueeze(1)
    check.shape(NAME, "states classes", classes, (clients, None))
    for name, value in zip(entries, tensors[""], strict=True):
        if value.dim() < 2 or value.shape[1] != classes.shape[1]:
            raise ValueError(
                f"{NAME}: states {name} must have {classes.shape[1]} classes on axis 1, but its shape is "
                f"{tuple(value.shape)}"
            )
    if (classes < 0).any():
        raise ValueError(f"{NAME}: states classes must not be below 0")
    share = share / total(share)
    weights = share * classes.double()
    weights = torch.where(total(weights) > 0, weights, share)
    return tuple(in_type(mean(value, weights), value) for value in tensors[""])
