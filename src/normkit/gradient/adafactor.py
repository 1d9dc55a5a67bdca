"""Adafactor: the second moment of a matrix from its rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, count, keep, settings
from normkit.gradient._sharded import place, reduce, together

TINY = 1e-38  # a floor of floors, where those are 0


@method(
    "adafactor",
    paper="Adafactor: Adaptive Learning Rates with Sublinear Memory Cost (Shazeer & Stern, 2018), arXiv 1804.04235",
    shape="...",
    replaces=("adam", "adamw"),
    evidence="library",
    provenance="torch.optim.Adafactor, in float64",
)
class Adafactor(Optimizer):
    """Divide a gradient by the root of a second moment that is kept for rows and columns alone.

    For models whose optimizer state must be small: of a matrix it keeps a row and a column of second moments, where
    Adam keeps two tensors. It has no momentum; where that is wanted, ``lion`` keeps one tensor.

    With t a parameter's count of steps, s = t^beta2_decay, and e = eps1, or the machine epsilon of its type, for each
    matrix of the last two axes

        a = max(eps2, root mean square of w) min(lr, 1 / sqrt(t)),    w <- w (1 - lr weight_decay)
        R <- (1 - s) R + s (mean of g^2 of each row),    C <- (1 - s) C + s (mean of g^2 of each column)
        V = R C / max(mean of R, e)
        u = g / sqrt(max(V, e^2)),    w <- w - a u / max(1, root mean square of u / clip)

    A vector has V <- (1 - s) V + s g^2. The root mean squares are over the whole tensor. No momentum is kept.

    Args:
        params: parameters, or groups of them.
        lr: the most that the relative step may be.
        beta2_decay: the power of the count that is the share of the new in the second moment.
        eps1: the least second moment, squared, and the least mean of the rows; None: by type.
        eps2: the least size of a weight that steps are relative to.
        clip: the largest root mean square of a direction.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        maximize: go up instead of down.
        foreach: taken for the sake of others: a parameter at a time is as fast.

    State of a parameter: ``step``; of matrices ``row_var`` and ``col_var``, of vectors ``variance``. A
    state of ``torch.optim.Adafactor`` loads, and its steps go on.

    Adafactor (Shazeer & Stern, 2018), arXiv 1804.04235; the arithmetic is that of ``torch.optim.Adafactor``.
    """

    state_names = frozenset({"step", "row_var", "col_var", "variance"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps1: float | None = None,
        eps2: float = 1e-3,
        clip: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def complete(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Return a group that is loaded; one of ``torch.optim.Adafactor`` in this class's words."""
        if "d" in group and len(group["eps"]) == 2:
            eps1, eps2 = group["eps"]
            group = {**group, "eps1": eps1, "eps2": eps2, "clip": group["d"]}
            del group["eps"], group["d"]
        return super().complete(group, own)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "beta2_decay", group["beta2_decay"], high=0.0)
        check.eps(self, group["eps2"], "eps2")
        check.number(self, "clip", group["clip"], 0.0, open_low=True)
        if group["eps1"] is not None:
            check.eps(self, group["eps1"], "eps1")

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        (steps,) = keep(params, states, "step")
        for p, g, state, t in zip(params, grads, states, count(steps), strict=True):
            root = max(1, p.numel()) ** 0.5
            rate = (together([p]) / root).clamp(min=group["eps2"]) * min(group["lr"], 1 / t**0.5)
            if group["weight_decay"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
            eps = torch.finfo(p.dtype).eps if group["eps1"] is None else group["eps1"]
            u = place(g / moment(g, state, t ** group["beta2_decay"], eps).clamp(min=max(eps**2, TINY)).sqrt(), p)
            p.sub_(u * (rate / (together([u]) / (root * group["clip"])).clamp(min=1.0)).to(p.dtype))


def moment(g: Tensor, state: dict, share: float, eps: float) -> Tensor:
    """Move the second moment of a gradient, and return it."""
    square = g.square()
    if g.dim() < 2:
        return move(state, "variance", square, share)
    rows = move(state, "row_var", reduce(square.mean(-1, keepdim=True)), share)
    columns = move(state, "col_var", reduce(square.mean(-2, keepdim=True)), share)
    return rows * columns / reduce(rows.mean(-2, keepdim=True)).clamp(min=max(eps, TINY))


def move(state: dict, name: str, value: Tensor, share: float) -> Tensor:
    """Move an average of a state."""
    return state.setdefault(name, torch.zeros_like(value)).lerp_(value, share)
