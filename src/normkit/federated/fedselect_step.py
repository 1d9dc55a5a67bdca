"""FedSelect's step: personal and shared positions trained in turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._masks import PAPER, masks
from normkit.federated._states import read

NAME = "fedselect-step"


@method(
    NAME,
    paper=PAPER,
    shape="C",
    over="",
    inputs={"mask": "C : mask", "gradient": "2 C"},
    example={"entries": ("weight",), "own": (True, False)},
    exempt={"gradcheck": "a mask is 0 or 1, and what is between is refused"},
)
def fedselect_step(
    *states: Tensor, entries: Sequence[str], own: Sequence[bool], lr: float = 0.05
) -> tuple[Tensor, ...]:
    """Step along given gradients, each step on personal positions only or on shared ones only.

    For a client of FedSelect between two rounds; which positions are personal is decided by ``fedselect-grow``. Where
    whole entries are personal no mask is needed, and any optimizer steps on those.

        entry <- entry - lr M gradient,    M = mask in a personal step, 1 - mask in a shared one

    For use in a loop with gradients that are taken as they come, give one step at a time.

    Args:
        states: the entries, their masks, 1 for personal, and the gradients, one a step, stacked (S, ...).
        entries: the names, in order.
        own: for each step whether it is personal.
        lr: the step.

    Returns the entries after each step, stacked (S, ...), one tensor an entry.

    FedSelect (Tamirisa et al., 2024), arXiv 2404.02478.
    """
    lr = check.number(NAME, "lr", lr, 0.0)
    if not isinstance(own, Collection):
        raise TypeError(f"{NAME}: own must be True or False for each step, not {own!r}")
    entries = tuple(check.names(NAME, "entries", entries))
    names = {"": entries, "mask": entries, "gradient": [f"gradient {name}" for name in entries]}
    tensors, _ = read(NAME, states, names, clients=False)
    return tuple(
        _steps(name, value, mask, gradient, own, lr)
        for name, value, mask, gradient in zip(
            entries, tensors[""], masks(NAME, entries, tensors["mask"]), tensors["gradient"], strict=True
        )
    )


def _steps(name: str, value: Tensor, mask: Tensor, gradient: Tensor, own: Sequence[bool], lr: float) -> Tensor:
    check.shape(NAME, f"states gradient:{name}", gradient, (len(own), *value.shape))
    steps, wide = [], value.double()
    for personal, slope in zip(own, gradient.double(), strict=True):
        wide = wide - lr * torch.where(mask if personal else ~mask, slope, 0)
        steps.append(wide)
    return (torch.stack(steps) if steps else wide.new_empty(0, *value.shape)).to(value.dtype)
