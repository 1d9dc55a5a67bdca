"""FedLabel's average: branches trained on labels and on pseudo-labels, half and half."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.federated._judges import PAPER
from normkit.federated._states import counts, mean, read
from normkit.ops.sums import in_type

NAME = "fedlabel-aggregate"


@method(
    NAME,
    paper=PAPER,
    shape="K C",
    over="K",
    inputs={"pseudo": "K C", "pseudo_labels": "K : index 9"},
    example={"entries": ("weight",)},
)
def fedlabel_aggregate(*states: Tensor, entries: Sequence[str]) -> tuple[Tensor, ...]:
    """Average what clients learned from labels, all alike, and from pseudo-labels, by their number; then both.

    For clients with few labels, who train the received model twice, once on each.

        entry = mean_k labeled_k / 2 + sum_k u_k pseudo_k / (2 sum_k u_k),    u_k the pseudo-labels, 1 for none

    Args:
        states: for each entry the labeled branches (K, ...), then the pseudo-labeled ones, then the numbers of
            pseudo-labels (K,).
        entries: the names, in order.

    Returns one state, one tensor an entry.

    Local or Global: Selective Knowledge Assimilation for Federated Learning with Limited Labels (Cho et al., 2023),
    arXiv 2307.08809.
    """
    tensors, [number] = read(NAME, states, {"labeled": entries, "pseudo": entries}, ("pseudo_labels",))
    used = counts(NAME, "pseudo_labels", torch.where(number == 0, 1, number), len(states[0]))
    alike = torch.ones_like(used)
    return tuple(
        in_type((mean(labeled, alike) + mean(pseudo, used)) / 2, labeled)
        for labeled, pseudo in zip(tensors["labeled"], tensors["pseudo"], strict=True)
    )
