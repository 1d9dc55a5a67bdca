"""Trimmed average: the average of clients' states without the least and the largest numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from normkit.catalog import method
from normkit.federated._states import read

NAME = "trimmed-average"


@method(
    NAME,
    paper="An example of the tests (normkit, 2026)",
    shape="K C",
    over="K",
    example={"entries": ("weight",)},
    evidence="equations",
)
def trimmed_average(*states: Tensor, entries: Sequence[str]) -> tuple[Tensor, ...]:
    """Average each number over the clients without its least and its largest.

    For rounds in which one client may send anything. Below three clients it is the average of all.

        entry <- mean of the sorted entry_2 ... entry_(K-1)

    Args:
        states: for each entry the clients', stacked (K, ...).
        entries: the names, in order.

    Returns one tensor an entry.

    An example of the tests (normkit, 2026).
    """
    tensors, _ = read(NAME, states, {"": entries})
    return tuple(_trim(value).to(value.dtype) for value in tensors[""])


def _trim(value: Tensor) -> Tensor:
    ordered = value.double().sort(0).values
    return (ordered[1:-1] if len(value) > 2 else ordered).mean(0)
