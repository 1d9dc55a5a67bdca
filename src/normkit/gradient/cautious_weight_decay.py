"""Cautious weight decay: only weights that the step makes smaller anyway decay."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._cautious import StepMask
from normkit.gradient._optimizer import Groups


@method(
    "cautious-weight-decay",
    paper="Cautious Weight Decay (Chen et al., 2025), arXiv 2510.12402",
    shape="...",
    example={"lr": 0.05},
    evidence="library",
    provenance="microsoft/dion, in float64; the paper's own code was not found",
)
class CautiousWeightDecay(StepMask):
    """Take another optimizer's step, and let only those entries decay that it does not make larger.

    For a run with a tuned decay apart from the gradient, as of AdamW, Lion or Muon: the coefficient stays as it is.
    Where decay is to be left out altogether, ``hyperball`` holds the weights' lengths instead.

    Decay that works against the step pulls to another minimum. With u the base's direction, that of a step w - lr u,

        w <- w - lr weight_decay w  where u w >= 0,    then w <- w - lr u

    with the w of before in the comparison. Muon has this built in: ``cautious_decay=True``.

    Args:
        params: parameters, or groups of them.
        base: the optimizer that takes the step, of torch.optim or the catalogue, whose decay must be apart from the
            gradient: ``"adamw"``, ``"lion"``, ``"muon"``.
        lr: the base's learning rate.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        maximize: go up instead of down; weights decay all the same.
        base_kwargs: what else the base takes: betas, momentum.

    State of a parameter: the base's, which is as without this.

    Cautious Weight Decay (Chen et al., 2025), arXiv 2510.12402.
    """

    def __init__(
        self,
        params: Groups,
        *,
        base: str = "adamw",
        lr: float,
        weight_decay: float = 0.01,
        maximize: bool = False,
        **base_kwargs: Any,
    ):
        check.number(self, "weight_decay", weight_decay, 0.0)
        options = {"lr": lr, "weight_decay": weight_decay, "maximize": maximize, **base_kwargs}
        super().__init__(params, base, {"cautious": True}, options)
        if not self.decoupled:
            raise ValueError(
                f"{type(self).__name__}: base must shrink weights by lr times weight_decay, apart from the gradient, "
                f"as adamw, lion and muon do; {base!r} with {base_kwargs} does not"
            )

    def mask(self, p: Tensor, before: Tensor, group: dict) -> None:
        """Let entries decay that the step has not made larger."""
        agrees = (p - before).sign() * before.sign() <= 0
        p.sub_(before * agrees, alpha=self.decay(group))
