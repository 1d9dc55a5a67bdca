"""NorMuon: Muon whose neurons all move equally far."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import Momentum, wideness
from normkit.gradient._optimizer import Groups, below_one, by_rows, settings
from normkit.gradient._sharded import is_sharded, lengths_along, local
from normkit.statistics import accurate

TINY = 1e-10


@method(
    "normuon",
    paper="NorMuon: Making Muon more efficient and scalable (Li et al., 2025), arXiv 2510.05491",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("adamw",),
    exempt={"no-gradient": "in the authors' code momentum goes on where there is no gradient"},
)
class NorMuon(Momentum):
    """Divide each row of Muon's direction by its size in the past, then step.

    In the place of ``muon``, where some neurons learn fast and some hardly, since rows of its direction differ in
    length. It keeps one number a row besides. Where the past should have no say, ``aurora`` evens rows within a step.

    With O Muon's direction, before its factor for the shape, and s its length,

        v <- beta2 v + (1 - beta2) (mean of O^2 over the last axis)
        N = O / (sqrt(v) + 1e-10)
        "spectral":   w <- w (1 - lr weight_decay) - lr sqrt(max(1, rows / columns)) N s / |N|
        "match_rms":  w <- w (1 - lr weight_decay) - 0.2 lr sqrt(rows columns) N / |N|

    A kernel (out, in, h, w) is orthogonalized as a matrix, but rows, columns and lengths are those of its last two
    axes, as in the authors' code. A parameter without a gradient is moved as by one of zero, but does not decay.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        beta2: the share of the old value in the mean of squares.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum; the paper does not.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        adjust_lr: ``"spectral"``, a step as long as Muon's, as in the authors' code. Or ``"match_rms"`` for matrices of
            two axes, entries of 0.2 lr in the root mean square, as in the paper.
        betas: of Adam's groups.
        eps: of Adam's groups.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``, ``second_momentum_buffer``; of Adam's: ``step``, ``exp_avg``,
    ``exp_avg_sq``.

    NorMuon (Li et al., 2025), arXiv 2510.05491. Differs from the authors' code in: the direction has the parameter's
    type before its squares are averaged, which torch needs now.
    """

    state_names = Momentum.state_names | {"second_momentum_buffer"}

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        beta2: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        ns_dtype: str | None = "bfloat16",
        adjust_lr: str = "spectral",
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-10,
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
        check.choice(self, "adjust_lr", group["adjust_lr"], ("spectral", "match_rms"))
        below_one(self, "beta2", group["beta2"])

    def check_shape(self, p: Tensor, group: dict) -> None:
        """Require a matrix, a stack of them or a kernel; with ``match_rms``, a matrix."""
        super().check_shape(p, group)
        if group["adjust_lr"] == "match_rms" and p.dim() != 2:
            raise ValueError(
                f'{type(self).__name__}: adjust_lr="match_rms" takes matrices of two axes, and params has one of '
                f"shape {tuple(p.shape)}"
            )

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        directions = self.orthogonal(params, grads, states, group)
        spectral = group["adjust_lr"] == "spectral"
        for p, o, even in zip(params, directions, self.evened(directions, params, states, group), strict=True):
            rate = group["lr"] * (wideness(p) if spectral else 0.2 * math.sqrt(p.numel()))
            sizes = (even * -rate).to(p.dtype)
            for w, u, size in by_rows(local(p), local(o), local(sizes)):
                if group["weight_decay"] and p.grad is not None:
                    w.mul_(1 - group["lr"] * group["weight_decay"])
                w.addcmul_(u.to(w.dtype), size)

    def evened(self, updates: list[Tensor], params: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """What divides each row by its past size, and gives the whole its length back, or one of 1."""
        lengths = of_rows(updates)
        pasts = []
        for own, o, p, state in zip(lengths, updates, params, states, strict=True):
            if "second_momentum_buffer" not in state:
                state["second_momentum_buffer"] = torch.zeros_like(own, dtype=p.dtype)
            mean = (own.square() / max(1, o.shape[-1])).to(p.dtype)
            pasts.append(accurate(state["second_momentum_buffer"].lerp_(mean, 1 - group["beta2"])).sqrt() + TINY)
        ratios = [own / past for own, past in zip(lengths, pasts, strict=True)]
        if group["adjust_lr"] == "match_rms":
            evens = lengths_along(ratios, -2)
            return [1 / (past * even.clamp(min=TINY)) for past, even in zip(pasts, evens, strict=True)]
        both = lengths_along([*ratios, *lengths], -2)
        evens, wholes = both[: len(updates)], both[len(updates) :]
        return [whole / (past * (even + TINY)) for past, even, whole in zip(pasts, evens, wholes, strict=True)]


def of_rows(updates: list[Tensor]) -> list[Tensor]:
    """Lengths along the last axis."""
    if is_sharded(updates):
        return lengths_along([accurate(o) for o in updates], -1)
    return [
        torch.cat([torch.linalg.vector_norm(accurate(x), dim=-1, keepdim=True) for (x,) in by_rows(o)]) for o in updates
    ]
