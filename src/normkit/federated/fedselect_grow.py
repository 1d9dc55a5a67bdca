"""FedSelect's growth: what moved most becomes personal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._masks import PAPER, masks
from normkit.federated._states import read

NAME = "fedselect-grow"


@method(
    NAME,
    paper=PAPER,
    shape="C I",
    over="C I",
    inputs={"previous": "C I", "mask": "C I : mask"},
    example={"entries": ("weight",)},
    exempt={"gradcheck": "a mask carries no gradient"},
)
@torch.no_grad()
def fedselect_grow(
    *states: Tensor, entries: Sequence[str], rate: float = 0.25, limit: float = 0.8
) -> tuple[Tensor, ...]:
    """Make those shared weights personal that changed most since the last growth.

    For clients that fine-tune some parameters alone and the rest together. Where whole entries are personal, as batch
    norms are, take ``fedbn-average``.

    In every entry whose name has "weight", if no more than ``limit`` of it is personal: with d = |current - previous|,
    and those of its m shared positions sorted, all with d at or above the one at round((1 - rate) m) become personal.
    Rounding is half to even; where there is no such position nothing grows.

    Args:
        states: the entries now, at the last growth, and of the mask, 1 for personal, 0 for shared.
        entries: the names, in order.
        rate: the share of the shared positions that becomes personal.
        limit: looked at before growing.

    Returns the new mask, one tensor an entry.

    FedSelect (Tamirisa et al., 2024), arXiv 2404.02478.
    """
    rate = check.number(NAME, "rate", rate, 0.0, 1.0)
    limit = check.number(NAME, "limit", limit, 0.0, 1.0)
    tensors, _ = read(NAME, states, dict.fromkeys(("current", "previous", "mask"), entries), clients=False)
    own = masks(NAME, entries, tensors["mask"])
    return tuple(
        (_grow(now, before, mask, rate, limit) if "weight" in name else mask).to(like.dtype)
        for name, now, before, mask, like in zip(
            entries, tensors["current"], tensors["previous"], own, tensors["mask"], strict=True
        )
    )


def _grow(now: Tensor, before: Tensor, mask: Tensor, rate: float, limit: float) -> Tensor:
    if float(mask.double().mean()) > limit:
        return mask
    moved = (now.double() - before.double()).abs()
    shared = moved[~mask].sort().values
    at = round((1 - rate) * len(shared))
    return mask | (moved >= shared[at]) if at < len(shared) else mask
