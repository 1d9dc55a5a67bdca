"""Aurora: Muon with rows of equal leverage on matrices that are not square."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import CONVERGING, Coefficients, Kin
from normkit.gradient._optimizer import Groups, settings


@method(
    "aurora",
    paper="Aurora (Tilde Research, 2026), github.com/tilde-research/aurora-release",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
)
class Aurora(Kin):
    """Orthogonalize the momentum so that the longer side's rows are equally long too.

    For tall and wide matrices, as of MLPs, whose neurons learn unevenly because Muon leaves their rows of different
    length. It orthogonalizes ``iterations`` times a step. Where that costs too much, ``normuon`` evens rows over time
    instead.

    With u Muon's momentum, and X = u where the matrix is tall, u^T where it is wide, of R rows and C columns,

        D = 1 / max(length of each row of X, eps)
        iterations times:  O = NS(D X),    and between two of them
            D <- D ((C / R) / max(sum of O^2 of each row, eps^2))^power
        w <- w (1 - lr weight_decay) - lr sqrt(max(1, rows / columns)) (O, turned back)

    A square matrix gets NS(u). It needs a polynomial that converges, as the default does: Muon's five rounds leave sums
    that cannot be compared. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of
    matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        iterations: how often the matrix is orthogonalized.
        power: of the correction between two of them.
        eps: the least length of a row.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Aurora (Tilde Research, 2026), https://github.com/tilde-research/aurora-release.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 0.05,
        momentum: float = 0.95,
        weight_decay: float = 0.025,
        nesterov: bool = True,
        iterations: int = 2,
        power: float = 0.5,
        eps: float = 1e-7,
        ns_steps: int = 12,
        ns_coefficients: Coefficients = CONVERGING,
        ns_eps: float = 1e-7,
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
        check.size(self, "iterations", group["iterations"])
        check.number(self, "power", group["power"], 0.0, 1.0)

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """Orthogonalize matrices with rows of the longer side evened."""
        rows, columns = x.shape[-2:]
        if rows == columns:
            return self.polar(x, group)
        x = x if rows > columns else x.mT
        even, eps = 1 / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=group["eps"]), group["eps"]
        o = self.polar(even * x, group)
        for _ in range(group["iterations"] - 1):
            sums = o.square().sum(-1, keepdim=True).clamp(min=eps**2)
            even = even * (x.shape[-1] / x.shape[-2] / sums) ** group["power"]
            o = self.polar(even * x, group)
        return o if rows > columns else o.mT
