"""FedSelect's average: each position over the clients that share it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._masks import PAPER, masks
from normkit.federated._states import read, total
from normkit.ops.sums import in_type

NAME = "fedselect-aggregate"


@method(
    NAME,
    paper=PAPER,
    shape="K C",
    over="K",
    inputs={"mask": "K C : mask"},
    example={"entries": ("weight",), "masked": ("weight",)},
    exempt={"gradcheck": "a mask is 0 or 1, and what is between is refused"},
)
def fedselect_aggregate(*states: Tensor, entries: Sequence[str], masked: Sequence[str]) -> tuple[Tensor, ...]:
    """Average each position over the clients to which it is shared, and give it to these.

    For the server of FedSelect, whose clients share different positions of one weight; ``fedselect-grow`` makes the
    masks. Where whole entries are shared or personal, as batch norms are, take ``fedbn-average``.

        shared = sum_k (1 - mask_k) state_k / sum_k (1 - mask_k),    0 where nobody shares
        state_k <- shared where mask_k is 0, else as it was

    Clients count alike. Entries without a mask, such as batch statistics, stay each client's own.

    Args:
        states: for each entry the clients', stacked (K, ...), then the masks of ``masked``, 1 for personal.
        entries: the names, in order.
        masked: those that have a mask, in order.

    Returns the shared value of each masked entry, then what each client has, stacked, one tensor an entry.

    FedSelect (Tamirisa et al., 2024), arXiv 2404.02478.
    """
    check.names(NAME, "masked", masked, check.names(NAME, "entries", entries))
    tensors, _ = read(NAME, states, {"": entries, "mask": masked})
    stacked = dict(zip(entries, tensors[""], strict=True))
    shared = {}
    for name, own in zip(masked, masks(NAME, masked, tensors["mask"]), strict=True):
        value, number = stacked[name], (~own).sum(0)
        joined = total(torch.where(own, 0, value)) / number.clamp(min=1)
        shared[name] = in_type(joined, value)
        stacked[name] = torch.where(own, value, shared[name])
    return (*shared.values(), *stacked.values())
