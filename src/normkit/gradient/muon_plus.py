"""Muon+: Muon's direction, whose rows and columns are then made equally long."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import Coefficients, Kin, unit
from normkit.gradient._optimizer import Groups, settings

FLOOR = 1e-7  # of a sum of squares


@method(
    "muon-plus",
    paper="Muon+: Towards Better Muon via One Additional Normalization Step (Zhang et al., 2026), arXiv 2602.21545",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
)
class MuonPlus(Kin):
    """Make the rows and columns of Muon's direction equally long, then step.

    In the place of ``muon``, where neurons should learn at one pace although few rounds of the polynomial are taken.
    ``normuon`` evens rows by their past, ``aurora`` by orthogonalizing again.

    Five rounds of Muon's polynomial leave singular values between 0.7 and 1.2, and so rows and columns of different
    length. With u Muon's momentum of a matrix of r rows and c columns, and O = NS(u),

        for each side in normalize:  O <- O / sqrt(sum of O^2 along it + 1e-7)
        w <- w (1 - lr weight_decay) - lr sqrt(r / c) O

    A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        normalize: ``"row"``, ``"col"``, ``"row_col"``, ``"col_row"``, in this order, or ``"none"``.
        adjust_lr: the factor for the shape of a matrix, as in Muon.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Muon+ (2026), arXiv 2602.21545. Differs from the authors' code in: momentum is an average;
    ``ns_eps`` of theirs is ours over 1 - momentum.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        nesterov: bool = True,
        normalize: str = "col_row",
        adjust_lr: str | None = "rms_to_rms",
        ns_steps: int = 5,
        ns_coefficients: Coefficients = (3.4445, -4.775, 2.0315),
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
        check.choice(self, "normalize", group["normalize"], ("row", "col", "row_col", "col_row", "none"))

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """Orthogonalize matrices, then make their sides even."""
        o = self.polar(x, group)
        for side in group["normalize"].split("_") if group["normalize"] != "none" else ():
            o = o / (o.square().sum(-1 if side == "row" else -2, keepdim=True) + FLOOR).sqrt()
        return unit(o, group["adjust_lr"])
