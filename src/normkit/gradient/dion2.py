"""Dion2: each step orthogonalizes those rows of the momentum that have gathered most."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._dialects import POLAR_EXPRESS
from normkit.gradient._muon import Coefficients, Kin, unit
from normkit.gradient._optimizer import MOMENTS, Groups, entrywise, keep, settings


@method(
    "dion2",
    paper="Dion2: A Simple Method to Shrink Matrix in Muon (Ahn, Amsel, Langford, 2025), arXiv 2512.16928",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
)
class Dion2(Kin):
    """Orthogonalize a share of the rows or columns of the momentum, the longest ones, and step along those alone.

    Where the orthogonalization of ``muon`` takes a large share of a step, as with large matrices and small batches.
    Where it is cheap beside the model, Muon moves all rows at once.

    Orthogonalizing a quarter of a matrix costs at most a quarter, and what is left out goes on gathering. With g the
    gradient of a matrix, slices its rows where it has no more of them than columns, else its columns, n their number,

        M <- M + g,    U = the max(1, ceil(fraction n)) slices of M with the largest sum of absolute values
        chosen slices of M <- ef_decay M
        w <- w (1 - lr weight_decay),    chosen slices of w <- w - lr factor NS(U)

    The factor is that of the whole matrix. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is
    a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        fraction: the share of slices that a step takes.
        ef_decay: the share of its momentum that a slice keeps after it was taken.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        adjust_lr: the factor for the shape of a matrix, as in Muon.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_safety: what the length of a matrix is multiplied by before it divides.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Dion2 (2025), arXiv 2512.16928.
    """

    state_names = MOMENTS | {"momentum"}

    def __init__(
        self,
        params: Groups,
        lr: float = 0.01,
        fraction: float = 0.25,
        ef_decay: float = 0.95,
        weight_decay: float = 0.01,
        adjust_lr: str | None = "rms_to_rms",
        ns_steps: int = 5,
        ns_coefficients: Coefficients = POLAR_EXPRESS,
        ns_safety: float = 1.02,
        ns_eps: float = 1e-8,
        ns_dtype: str | None = "bfloat16",
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "fraction", group["fraction"], 0.0, 1.0, open_low=True)
        check.number(self, "ef_decay", group["ef_decay"], 0.0, 1.0)

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return the directions, zero outside the chosen slices."""
        (buffers,) = keep(params, states, "momentum")
        entrywise(lambda buffers, grads: torch._foreach_add_(buffers, grads), buffers, grads)
        directions = self.directions(buffers, lambda x: self.direction(x, group), group)
        updates = self.directions(buffers, lambda x: self.on_largest(x, torch.ones_like, group), group)

        def work(buffers, updates):
            for buffer, one in zip(buffers, updates, strict=True):
                buffer.copy_(torch.where(one > 0, group["ef_decay"] * buffer, buffer))

        entrywise(work, buffers, updates)
        return directions

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """Orthogonalize the chosen slices of matrices."""
        return unit(self.on_largest(x, lambda u: self.polar(u, group), group), group["adjust_lr"])

    def on_largest(self, x: Tensor, work: Callable[[Tensor], Tensor], group: dict) -> Tensor:
        """Do some work on the chosen slices of matrices; the others are zero."""
        tall = x.shape[-2] > x.shape[-1]
        x = x.mT if tall else x
        count = max(1, math.ceil(group["fraction"] * x.shape[-2]))
        places = x.abs().sum(-1).topk(count).indices[..., None].expand(*x.shape[:-2], count, x.shape[-1])
        y = torch.zeros_like(x).scatter(-2, places, work(x.gather(-2, places)))
        return y.mT if tall else y
