"""FedBN's average: clients' states averaged, but for what stays with each."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import counts, join, read

NAME = "fedbn-average"


@method(
    NAME,
    paper="FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (Li et al., 2021), "
    "arXiv 2102.07623",
    shape="K C",
    over="K",
    inputs={"count": "K : unit"},
    example={"entries": ("weight",)},
)
def fedbn_average(*states: Tensor, entries: Sequence[str], local: Sequence[str] = ()) -> tuple[Tensor, ...]:
    """Average the clients' states by their sample counts, and leave each what is its own.

    For clients whose data look different: their batch norms stay local, all else is shared.

        entry_k <- sum_j n_j entry_j / sum_j n_j,    and unchanged in ``local``

    Sums are taken in float64; whole numbers are rounded. The order of the clients changes nothing.

    Args:
        states: for each entry the clients', stacked (K, ...), then their sample counts (K,).
        entries: the names, in order.
        local: those that stay; ``surgery.statistics.federated.local_entries`` finds a model's batch norms.

    Returns what each client has after the round, stacked, one tensor an entry.

    FedBN (Li et al., 2021), arXiv 2102.07623.

    Differs from the authors' code in: whole numbers are averaged and rounded, not those of the first client.
    """
    tensors, [count] = read(NAME, states, {"": entries}, ("count",))
    check.names(NAME, "local", local, entries)
    weights = counts(NAME, "count", count, len(states[0]))
    return tuple(
        value if name in local else join(value, weights).expand(value.shape).clone()
        for name, value in zip(entries, tensors[""], strict=True)
    )
