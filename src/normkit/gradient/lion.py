"""Lion: the sign of a look ahead along momentum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, keep, multiply, settings


@method(
    "lion",
    paper="Symbolic Discovery of Optimization Algorithms (Chen et al., 2023), arXiv 2302.06675",
    shape="...",
    replaces=("adamw",),
    evidence="library",
    provenance="Emerging-Optimizers and microsoft/dion, in float64",
)
class Lion(Optimizer):
    """Step by the sign of momentum mixed with the gradient, equally far in each entry.

    For large models on which Adam's two moments weigh in memory: it keeps one. A rate tuned for AdamW does not carry
    over. Where also that one is too much, ``adafactor`` keeps a row and a column.

    With g the gradient and m the momentum before this step,

        u = sign(b1 m + (1 - b1) g)
        w <- w (1 - lr weight_decay) - lr u,    m <- b2 m + (1 - b2) g

    The sign of 0 is 0. Learning rates are 3 to 10 times smaller than AdamW's, decays as much larger.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: the share of the momentum in the step, and of the old value in the momentum.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``exp_avg``.

    Symbolic Discovery of Optimization Algorithms (Chen et al., 2023), arXiv 2302.06675.
    """

    state_names = frozenset({"exp_avg"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        (firsts,) = keep(params, states, "exp_avg")
        beta, beta_kept = group["betas"]

        def work(params, grads, firsts):
            signs = torch._foreach_sign(torch._foreach_lerp(firsts, grads, 1 - beta))
            if group["weight_decay"]:
                multiply(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, signs, alpha=-group["lr"])
            torch._foreach_lerp_(firsts, grads, 1 - beta_kept)

        entrywise(work, params, grads, firsts)
