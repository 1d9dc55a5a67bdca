"""Muown: Muon turns the rows of a weight, and Adam sets how long they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import cut_as, full_matrix, matrix_shape
from normkit.gradient._muon import Coefficients, Kin, factor
from normkit.gradient._optimizer import Groups, move_moments, settings, step_number

LEAST = 1e-12  # floor of a row's length


@method(
    "muown",
    paper="Muown: Row-Norm Control for Muon Optimization (Lion et al., 2026), arXiv 2605.10797",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
    evidence="library",
    provenance="Emerging-Optimizers, contrib/muown.py",
    exempt={"still": "a weight is put together again from its lengths and directions, which rounds it"},
)
class Muown(Kin):
    """Divide a weight into lengths of its rows and directions; step the directions by Muon, the lengths by Adam.

    For long runs with Muon, which makes rows longer all the time and so slows their turns; here nothing but Adam
    changes a row's length. Where lengths should stay as they began, take ``hyperball``.

    With w = g v / |v|, row by row, G the gradient, and U = w / g,

        v = U n,    dg = row sums of G U,    dv = (g / n) (G - U dg)
        b <- momentum b + (1 - momentum) dv
        v <- v - lr factor NS(b), or with nesterov NS((1 - momentum) dv + momentum b)
        g <- g - lr Adam(dg),    then g <- g (1 - lr weight_decay)
        w <- g v / |v|,    n <- |v|

    n begins as the lengths of the rows. It only grows, so that steps turn a row less and less, unless there is a
    schedule (steps, target, power): then n = (1 - s) n_0 + s target with s = min((t - 1) / (steps - 1), 1)^power. g may
    become negative. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate of both.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a row's length that is taken off after a step, times the learning rate.
        nesterov: look ahead along the momentum.
        betas: shares of the old value in the moments of the lengths; Adam's groups have (0.9, 0.95) or their own.
        eps: added to the root of the second moment of the lengths; Adam's groups have 1e-10 or their own.
        adjust_lr: the factor for the shape of a matrix, as in Muon.
        row_norm_schedule: steps, target and power of n, or None.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``step``, ``g``, ``v_norm``, ``momentum_buffer``, Adam's moments of g, ``g_exp_avg`` and
    ``g_exp_avg_sq``, and ``v_norm_start``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Of distributed tensors each process keeps its part of the momentum, and all lengths.

    Muown (2026), arXiv 2605.10797. Rows of zeros begin with a length of 1e-12.
    """

    state_names = Kin.state_names | {"g", "v_norm", "v_norm_start", "g_exp_avg", "g_exp_avg_sq"}

    exact = frozenset({"g", "v_norm", "v_norm_start", "g_exp_avg", "g_exp_avg_sq"})

    def __init__(
        self,
        params: Groups,
        lr: float = 3e-4,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        adjust_lr: str | None = "match_rms_adamw",
        row_norm_schedule: Sequence[float] | None = None,
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
        schedule = group["row_norm_schedule"]
        if schedule is None:
            return
        if not isinstance(schedule, Sequence) or len(schedule) != 3:
            raise ValueError(
                f"{type(self).__name__}: row_norm_schedule must be steps, target and power, not {schedule!r}"
            )
        check.size(self, "row_norm_schedule", schedule[0])
        check.number(self, "row_norm_schedule", schedule[1], 0.0, open_low=True)
        check.number(self, "row_norm_schedule", schedule[2], 0.0)

    @torch._disable_dynamo
    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        apart = [directions(p, g, state) for p, g, state in zip(params, grads, states, strict=True)]
        slopes = [cut_as(slope, p) for (_, slope, _), p in zip(apart, params, strict=True)]
        os = self.orthogonal(params, slopes, states, group)
        for p, (v, _, along), o, state in zip(params, apart, os, states, strict=True):
            rate = group["lr"] * factor(group["adjust_lr"], *matrix_shape(p))
            v = v - rate * full_matrix(o)
            state["step"] += 1
            size = self.lengths(along, state, group)
            now = lengths(v)
            if group["lr"] != 0:  # a weight that stays is not rounded
                p.copy_(cut_as(size * v / now, p))
            state["v_norm"] = self.next_lengths(now, state, group)

    def lengths(self, along: Tensor, state: dict, group: dict) -> Tensor:
        """Move the lengths of rows by Adam, and return them."""
        (beta, beta_square), t = group["betas"], state["step"].item()
        first, second = state["g_exp_avg"], state["g_exp_avg_sq"]
        move_moments([along], [first], [second], group["betas"])
        below = (second / (1 - beta_square**t)).sqrt_().add_(group["eps"])
        state["g"].sub_(first / (1 - beta**t) / below * group["lr"])
        return state["g"].mul_(1 - group["lr"] * group["weight_decay"])

    def next_lengths(self, now: Tensor, state: dict, group: dict) -> Tensor:
        """The lengths that the directions have at the next step."""
        if group["row_norm_schedule"] is None:
            return now
        steps, target, power = group["row_norm_schedule"]
        share = min((state["step"].item() - 1) / max(1, steps - 1), 1.0) ** power
        return (1 - share) * state["v_norm_start"] + share * target


def directions(p: Tensor, grad: Tensor, state: dict) -> tuple[Tensor, Tensor, Tensor]:
    """The directions of a weight's rows, and the gradients of them and of the rows' lengths."""
    w, g = full_matrix(p), full_matrix(grad)
    if "g" not in state:
        size = lengths(w)
        state |= {"step": step_number(), "g": size, "v_norm": size.clone(), "v_norm_start": size.clone()}
        state |= {"g_exp_avg": torch.zeros_like(size), "g_exp_avg_sq": torch.zeros_like(size)}
    unit = w / torch.where(state["g"] == 0, LEAST, state["g"])
    along = (g * unit).sum(-1, keepdim=True)
    return unit * state["v_norm"], state["g"] / state["v_norm"] * (g - unit * along), along


def lengths(x: Tensor) -> Tensor:
    """The length of each row, floored."""
    return x.norm(dim=-1, keepdim=True).clamp(min=LEAST)
