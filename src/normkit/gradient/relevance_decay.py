"""Relevance decay: weights that the loss does not depend on decay, the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._based import Based
from normkit.gradient._optimizer import Groups
from normkit.statistics import accurate


@method(
    "relevance-decay",
    paper="Regularization-based Pruning of Irrelevant Weights in Deep Neural Architectures (Bonetta et al., 2022), "
    "arXiv 2204.04977",
    shape="...",
    example={"lr": 0.05, "gamma": 0.1, "decay_steps": 4},
    exempt={"still": "weights that the loss does not depend on decay: that is the method"},
)
class RelevanceDecay(Based):
    """Add to each gradient a decay of its weight, the weaker the larger the gradient is.

    For pruning a trained model in rounds: train with it, cut the smallest weights off while the validation score
    allows it (``global-magnitude-pruning``), :meth:`restart`, and fine-tune without it in the end. At step t from 1,

        g <- g + 2 gamma_t exp(-|g| / alpha) w,    gamma_t = gamma, or max(0, gamma - gamma t / decay_steps)

    and then the base's step, which sees the decay as part of the gradient. It is what ``relevance-penalty`` gives, in
    one backward pass. A parameter without a gradient is left alone.

    Args:
        params: parameters, or groups of them.
        base: the optimizer that takes the step: ``"sgd"``, ``"adam"``, or another of torch.optim or of the catalogue.
        lr: its learning rate.
        gamma: the strength, half of a weight decay's.
        alpha: the size of a gradient's entry at which a weight begins to count.
        decay_steps: steps over which the strength falls to 0; None: it stays.
        base_options: what else the base takes.
        maximize: go up instead of down; weights decay all the same.

    State of a parameter: the base's; of a group: ``steps``.

    Regularization-based Pruning of Irrelevant Weights (Bonetta, Ribero, Cancelliere, 2022), arXiv 2204.04977.
    """

    renamed = MappingProxyType({"alpha": "relevance_alpha"})

    def __init__(
        self,
        params: Groups,
        *,
        base: str = "sgd",
        lr: float,
        gamma: float = 1e-5,
        alpha: float = 1.0,
        decay_steps: int | None = None,
        maximize: bool = False,
        **base_options: Any,
    ):
        own = {"gamma": gamma, "alpha": alpha, "decay_steps": decay_steps, "steps": 0, "maximize": maximize}
        super().__init__(params, base, own, {"lr": lr, "maximize": maximize, **base_options})

    def complete(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Return a group that is loaded; in older ones alpha was under a name that some bases have as well."""
        if "relevance_alpha" not in group and "alpha" in group:
            group = {**group, "relevance_alpha": group["alpha"], "alpha": own.get("alpha", group["alpha"])}
        return super().complete(group, own)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "gamma", group[self.key("gamma")], 0.0)
        check.number(self, "alpha", group["relevance_alpha"], 0.0, open_low=True)
        if group["decay_steps"] is not None:
            check.size(self, "decay_steps", group["decay_steps"])

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient, with the decay in it."""
        assert p.grad is not None
        gamma, steps = group[self.key("gamma")], group["decay_steps"]
        if steps is not None:
            gamma = max(0.0, gamma - gamma / steps * (group[self.key("steps")] + 1))
        share = torch.exp(-accurate(p.grad).abs() / group["relevance_alpha"])
        decay = 2 * gamma * share * accurate(p)
        return (accurate(p.grad) + (-decay if group["maximize"] else decay)).to(p.grad.dtype)

    def finish(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Count the step."""
        self._count()

    def restart(self) -> None:
        """Begin the strength's fall anew, as after each pruning."""
        for group in self.param_groups:
            group[self.key("steps")] = 0
