"""MuonEq: rows and columns are balanced before a matrix is orthogonalized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import Coefficients, Kin
from normkit.gradient._optimizer import Groups, settings


@method(
    "muoneq",
    paper="MuonEq: Balancing Before Orthogonalization with Lightweight Equilibration (Chang et al., 2026), arXiv "
    "2603.28254",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
)
class MuonEq(Kin):
    """Balance the rows, or the columns, of the momentum before it is orthogonalized.

    In the place of ``muon``, where few rounds of its polynomial must do: they go further where singular values are
    alike to begin with. ``muon-plus`` evens the result instead, after the rounds.

    With g the gradient,

        b <- momentum b + g,    u = g + momentum b with nesterov, else b
        a_i = (sum of u^2 along row i + eps)^exponent,    b_j = (sum of u^2 along column j + eps)^exponent
        "row": u <- a_i u;    "col": u <- u b_j;    "rowcol": u <- a_i u b_j
        w <- w (1 - lr weight_decay) - lr factor NS(u)

    Both scales are those of u itself. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a
    stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        normalize: ``"row"``, ``"col"`` or ``"rowcol"``: what is balanced.
        exponent: -0.5 makes lengths one; -0.25 keeps the whole in balance for ``"rowcol"``.
        eps: added to the sums of squares.
        clip: a bound K of at least 1: scales are held in [1 / K, K].
        phase: the step, counted from 1, from which on ``"rowcol"`` balances rows only; steps are those of the group.
        adjust_lr: the factor for the shape of a matrix, as in Muon.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of a group: ``steps``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    MuonEq (2026), arXiv 2603.28254.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        nesterov: bool = True,
        normalize: str = "row",
        exponent: float = -0.5,
        eps: float = 1e-8,
        clip: float | None = None,
        phase: int | None = None,
        adjust_lr: str | None = "match_rms_adamw",
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
        super().__init__(**settings(locals()), steps=0)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "normalize", group["normalize"], ("row", "col", "rowcol"))
        check.number(self, "exponent", group["exponent"], -1.0, 0.0)
        if group["clip"] is not None:
            check.number(self, "clip", group["clip"], 1.0)
        if group["phase"] is not None:
            check.size(self, "phase", group["phase"])

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Count the step of each group."""
        for _, group in work:
            group["steps"] += 1

    @torch._disable_dynamo  # the count of a group is a number, for each of which a step would be compiled anew
    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        super().update(params, grads, states, group)

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return the directions."""
        us = self.summed(params, grads, states, group)
        return self.directions(us, lambda x: self.direction(x, group), group)

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """Balance matrices, then orthogonalize them."""
        sides = {"row": (-1,), "col": (-2,), "rowcol": (-1, -2)}[group["normalize"]]
        if len(sides) == 2 and group["phase"] is not None and group["steps"] >= group["phase"]:
            sides = (-1,)
        scales = [(x.square().sum(axis, keepdim=True) + group["eps"]) ** group["exponent"] for axis in sides]
        for scale in scales:
            x = x * (scale if group["clip"] is None else scale.clamp(1 / group["clip"], group["clip"]))
        return super().direction(x, group)
