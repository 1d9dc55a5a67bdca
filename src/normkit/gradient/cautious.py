"""Cautious optimizers: entries of a step that go against the gradient are left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._cautious import StepMask
from normkit.gradient._optimizer import Groups
from normkit.gradient._sharded import whole
from normkit.statistics import accurate

LEAST = 1e-3  # floor of the share of entries that are left


@method(
    "cautious",
    paper="Cautious Optimizers: Improving Training with One Line of Code (Liang et al., 2024), arXiv 2411.16085",
    shape="...",
    example={"lr": 0.05, "weight_decay": 0.0},
)
class Cautious(StepMask):
    """Take another optimizer's step only in entries where the gradient agrees with it, enlarged for those left out.

    For a run with a tuned momentum optimizer that should take fewer steps, at no further state. Where an entry should
    rather turn round than wait, ``grams`` does so with Adam's step.

    Momentum may point up where the gradient has just turned. With u the base's direction, that of a step w - lr u,
    g the gradient and n the entries of a parameter,

        k = 1 where u g > 0, else 0
        "mean":   u <- u k / max(mean of k, 1e-3)
        "count":  u <- u k n / (sum of k + 1)
        w <- w (1 - lr weight_decay) - lr u

    The decay is not masked, but for a base whose decay is part of the gradient, as that of ``"adam"`` and of ``"sgd"``
    with momentum. Where nothing agrees weights only decay; where little does, it is enlarged up to 1000 times. Of
    weights in half precision, the steps that rounding loses count as agreeing: nobody knows where they pointed.

    Args:
        params: parameters, or groups of them.
        base: the optimizer that takes the step, of torch.optim or the catalogue: ``"adamw"``, ``"lion"``, ``"muon"``.
        rescale: ``"mean"``, of C-AdamW, or ``"count"``, of C-Lion.
        lr: the base's learning rate.
        maximize: go up instead of down.
        base_kwargs: what else the base takes: betas, weight_decay.

    State of a parameter: the base's, which is as without this.

    Cautious Optimizers (Liang et al., 2024), arXiv 2411.16085. Differs from the authors' code in: the epsilon of AdamW
    is that of torch.optim, added after the correction of the moments.
    """

    def __init__(
        self,
        params: Groups,
        *,
        base: str = "adamw",
        rescale: str = "mean",
        lr: float,
        maximize: bool = False,
        **base_kwargs: Any,
    ):
        super().__init__(params, base, {"rescale": rescale}, {"lr": lr, "maximize": maximize, **base_kwargs})

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "rescale", group[self.key("rescale")], ("mean", "count"))

    def mask(self, p: Tensor, before: Tensor, group: dict) -> None:
        """Leave out entries that go against the gradient."""
        assert p.grad is not None
        move = accurate(p) - accurate(before)
        along = move.sign() * p.grad.sign()
        agrees = along > 0 if group["maximize"] else along < 0
        counted = agrees if move.dtype == p.dtype else agrees | (move == 0) & (p.grad != 0)
        count = whole(counted.to(move.dtype).sum())
        if group[self.key("rescale")] == "mean":
            scale = 1 / (count / max(1, p.numel())).clamp(min=LEAST)
        else:
            scale = p.numel() / (count + 1)
        p.copy_(torch.addcmul(accurate(before) * (1 - self.decay(group)), move, agrees * scale))
