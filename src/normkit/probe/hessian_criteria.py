"""Two numbers of a Hessian's spectrum: how deep it goes below zero, and how much of it lies there."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

PAPER = (
    "Investigating generalization capabilities of neural networks by means of loss landscapes and Hessian analysis "
    "(Gabdullin, 2024), arXiv 2412.10146"
)


class Criteria(NamedTuple):
    """The smallest over the largest eigenvalue, and the negative mass over the positive."""

    ratio: Tensor
    balance: Tensor


@method(
    "hessian-criteria",
    paper=PAPER,
    shape="N K",
    over="K",
    inputs={"weights": "N K : simplex"},
    invariant=("a positive factor on the eigenvalues",),
    exempt={"gradcheck": "a probe, not a loss: it has no gradient"},
)
@torch.no_grad()
def hessian_criteria(eigenvalues: Tensor, weights: Tensor, *, power: float = 0.5) -> Criteria:
    """Compare the negative part of a Hessian's spectrum with the positive one.

    For telling how a model fares on other data than it was trained on. Of each run of ``hessian-spectrum``, with
    eigenvalues e and weights w,

        ratio = |min e / max e|,    balance = sum over e < 0 of (|e| w)^power / sum over e > 0 of (e w)^power

    and the mean over the runs. The balance depends on the number of steps: compare only equal settings.

    Args:
        eigenvalues: of the runs, (R, k), at least one of each.
        weights: theirs, (R, k), not negative.
        power: the exponent of the masses.

    Returns ``ratio`` and ``balance``. No gradient.

    Investigating generalization capabilities (Gabdullin, 2024), arXiv 2412.10146.
    """
    name = "hessian_criteria"
    values, masses = runs(name, eigenvalues, weights)
    power = check.number(name, "power", power, 0.0, open_low=True)
    raised = (values.abs() * masses) ** power
    balance = (raised * (values < 0)).sum(1) / (raised * (values > 0)).sum(1)
    ratio = (values.amin(1) / values.amax(1)).abs()
    none = ~(values < 0).any(1)
    criteria = Criteria(ratio.mean(), balance.masked_fill(none, 0).mean())
    return Criteria(*(value.to(eigenvalues.dtype) for value in criteria))


def runs(owner: str, eigenvalues: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Require eigenvalues and weights of at least one run, and return them in the accurate type."""
    check.values(owner, "eigenvalues", eigenvalues, (None, None), eigenvalues)
    if not eigenvalues.numel():
        raise ValueError(f"{owner}: eigenvalues must not be empty, but its shape is {tuple(eigenvalues.shape)}")
    check.values(owner, "weights", weights, eigenvalues.shape, eigenvalues)
    wide = accurate(eigenvalues)
    return wide, weights.to(wide.dtype)
