"""LAWN: weights that may grow for a while, and then keep their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._based import Based
from normkit.gradient._optimizer import Groups
from normkit.gradient._sharded import local, together, whole
from normkit.statistics import accurate


@method(
    "lawn",
    paper="Logit Attenuating Weight Normalization (Gupta et al., 2021), arXiv 2108.05839",
    evidence="abstract",
    shape="...",
    example={"lr": 0.05, "free_steps": 1},
    provenance="the paper's abstract, in float64; there is no public code, and what the abstract leaves open is in the "
    "docstring",
)
class LAWN(Based):
    """Train freely at first, then hold the length of each weight where it has come to.

    For large batches, where growing logits let the loss vanish before the model has learned enough. ``free_steps`` must
    be chosen; ``hyperball`` holds lengths from the first step on.

    Lengths that stop growing hold the logits back, so that the loss does not vanish and large batches go on learning.
    After ``free_steps`` steps of the base, with c the length of a weight w at that moment,

        g <- g - <w, g> / <w, w> w,    the base's step,    w <- w c / |w|

    The moments are kept at that moment, and count all steps. Tensors of fewer than ``min_ndim`` axes, and those of
    groups with ``constrained=False``, stay free.

    Args:
        params: parameters, or groups of them.
        base: the optimizer that takes the step: ``"sgd"``, ``"adam"``, ``"adamw"``, or another of torch.optim or of the
            catalogue.
        lr: its learning rate.
        free_steps: how many steps are free.
        warmup_steps: steps over which the learning rate rises to ``lr`` again once lengths are held.
        min_ndim: the axes that a tensor must have to be held.
        base_kwargs: what else the base takes: momentum, betas; no weight decay is meant.
        maximize: go up instead of down.

    State of a parameter: the base's, and of one that is to be held ``norm``, 0 until then; of a group: ``steps``.

    Logit Attenuating Weight Normalization (Gupta et al., 2021), arXiv 2108.05839.
    """

    beside = frozenset({"norm"})

    def __init__(
        self,
        params: Groups,
        *,
        base: str = "adam",
        lr: float,
        free_steps: int,
        warmup_steps: int = 0,
        min_ndim: int = 2,
        maximize: bool = False,
        **base_kwargs: Any,
    ):
        own = {"constrained": True, "free_steps": free_steps, "warmup_steps": warmup_steps, "min_ndim": min_ndim}
        own |= {"steps": 0, "maximize": maximize}
        super().__init__(params, base, own, {"lr": lr, "maximize": maximize, **base_kwargs})

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        for name in ("free_steps", "warmup_steps", "min_ndim"):
            check.size(self, name, group[name], least=0)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, which joins the count of steps."""
        done = self.param_groups[0][self.key("steps")] if self.param_groups else 0
        super().add_param_group({"steps": done, **param_group})

    @property
    def exact(self) -> frozenset[str]:  # type: ignore[override]
        """What stays in float32: the base's, and the length of a weight that is held."""
        return super().exact | {"norm"}

    def _is_constrained(self, p: Tensor, group: dict) -> bool:
        """Whether the length of a parameter is held in the end."""
        return group["constrained"] and p.dim() >= group["min_ndim"]

    def holds_length(self, p: Tensor, group: dict) -> bool:
        """Whether the length of a parameter is held by now."""
        return self._is_constrained(p, group) and group[self.key("steps")] >= group["free_steps"]

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient, without its share along a weight that is held."""
        assert p.grad is not None
        if not self.holds_length(p, group):
            return p.grad
        w, g = accurate(p), accurate(p.grad)
        square, along = whole(w.square().sum()), whole((w * g).sum())
        return p.grad - p * torch.where(square > 0, along / square, 0).to(p.dtype)

    def base_step(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Take the base's step, at the rate that warming up leaves; before the first one held, keep the lengths."""
        self.lengths = {p: together([p]) for params, group in work for p in params if self.holds_length(p, group)}
        rates = [group["lr"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                done, warm = group[self.key("steps")] - group["free_steps"], group["warmup_steps"]
                group["lr"] = group["lr"] * (min(1.0, (done + 1) / warm) if warm and done >= 0 else 1.0)
            super().base_step(work)
        finally:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate

    def finish(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Give the weights that are held their lengths back, and count the step."""
        for p in (p for params, group in work for p in params if self._is_constrained(p, group)):
            # from the first step on, since torch's checkpoints load no more than a new optimizer has after one
            norm = self.state[p].setdefault("norm", accurate(local(p).new_zeros(())))
            if p in self.lengths:
                norm.copy_(torch.where(norm > 0, norm, self.lengths[p]))
                now = together([p])
                p.copy_(accurate(p) * torch.where(now > 0, norm / now, 1))
        self._count()
