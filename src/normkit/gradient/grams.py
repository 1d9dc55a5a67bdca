"""Grams: the gradient says where to, momentum how far."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.gradient._optimizer import (
    MOMENTS,
    Groups,
    Optimizer,
    add_quotients,
    count,
    entrywise,
    keep,
    move_moments,
    multiply,
    settings,
)


@method(
    "grams",
    paper="Grams: Gradient Descent with Adaptive Momentum Scaling (Cao et al., 2024), arXiv 2412.17107",
    shape="...",
    replaces=("adam", "adamw"),
)
class Grams(Optimizer):
    """Take a step of Adam's size in each entry, down the current gradient's side.

    In the place of Adam, where momentum carries on after the gradient has turned. ``cautious`` leaves such entries out
    rather than turn them, and takes any optimizer.

    Momentum may point up where the gradient has just turned; this never does. With m and v Adam's moments,

        w <- w (1 - lr weight_decay)
        w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) sign(g) |m| / (sqrt(v) + eps)

    An entry whose gradient is 0 does not move.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: added to the root of the second moment, which is not corrected for its start.
        weight_decay: the share of a weight that is taken off before a step, times the learning rate.
        correct_bias: correct the moments for their start at 0, in the rate.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Grams (Cao et al., 2024), arXiv 2412.17107.
    """

    state_names = MOMENTS

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        steps, firsts, seconds = keep(params, states, "step", "exp_avg", "exp_avg_sq")
        rates = [-corrected_rate(group, t) for t in count(steps)]

        def work(params, grads, firsts, seconds, rates):
            if group["weight_decay"]:
                multiply(params, 1 - group["lr"] * group["weight_decay"])
            move_moments(grads, firsts, seconds, group["betas"])
            below = torch._foreach_sqrt(seconds)
            torch._foreach_add_(below, group["eps"])
            above = torch._foreach_sign(grads)
            torch._foreach_mul_(above, torch._foreach_abs(firsts))
            add_quotients(params, above, below, rates)

        entrywise(work, params, grads, firsts, seconds, rates)


def corrected_rate(group: dict, step: float) -> float:
    """The rate of a step, with Adam's corrections in it where ``correct_bias`` asks for them."""
    beta, beta_square = group["betas"]
    return group["lr"] * (((1 - beta_square**step) ** 0.5 / (1 - beta**step)) if group["correct_bias"] else 1.0)
