"""AdamP: Adam without the part of the step that only makes weights longer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import (
    MOMENTS,
    Groups,
    Optimizer,
    adam,
    count,
    entrywise,
    keep,
    move_moments,
    settings,
)
from normkit.gradient._projection import projection


@method(
    "adamp",
    paper="AdamP: Slowing Down the Slowdown for Momentum Optimizers on Scale-invariant Weights (Heo et al., 2021), "
    "arXiv 2006.08217",
    shape="...",
    replaces=("adam", "adamw"),
)
class AdamP(Optimizer):
    """Take Adam's step, less its share along the weight where the weight's length does not matter.

    For networks with norms: momentum lengthens the weights in front of a norm all the time, so that their steps turn
    them less than the schedule says. On SGD's step it is ``sgdp``; where no length should change at all, take
    ``hyperball``.

    A weight in front of a norm only has a direction. A tensor of two or more axes is taken to be such a weight if its
    gradient g is nearly orthogonal to it. That is asked over rows (the first axis) or else over the whole, D entries
    each:

        max over rows |cos(g, w)| < delta / sqrt(D)

    With u Adam's direction, m / (sqrt(v) / sqrt(1 - b2^t) + eps), and n = w / (|w| + eps):

        u <- u - n <n, u>                                   where it is
        w <- w (1 - lr weight_decay ratio) - lr / (1 - b1^t) u      ratio = wd_ratio where it is, else 1

    Vectors are never projected: they get AdamW.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: floor of the denominator, of the lengths in the cosine, and added to the length of the weight.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        delta: how far from upright a gradient may stand; 0 projects nothing.
        wd_ratio: the part of the decay that is left where the step is projected.
        nesterov: look ahead along the momentum.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``step``, ``exp_avg``, ``exp_avg_sq``.

    AdamP (Heo et al., 2021), arXiv 2006.08217.
    """

    state_names = MOMENTS

    def __init__(
        self,
        params: Groups,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "delta", group["delta"], 0.0)
        check.number(self, "wd_ratio", group["wd_ratio"], 0.0, 1.0)

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group; those that are not projected by Adam's own step."""
        projections = [projection(w, g, group["delta"], group["eps"]) for w, g in zip(params, grads, strict=True)]
        straight = [] if group["nesterov"] else [i for i, projected in enumerate(projections) if projected is None]
        if straight:
            settings = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            moved, sent, kept_of = ([xs[i] for i in straight] for xs in (params, grads, states))
            adam(moved, sent, kept_of, **settings)  # type: ignore[arg-type]
        rest = [i for i in range(len(projections)) if i not in set(straight)]
        if rest:
            w, g, state, projected = ([xs[i] for i in rest] for xs in (params, grads, states, projections))
            self.turned(w, g, state, projected, group)

    def turned(self, params, grads, states, projections, group) -> None:
        """Move those whose direction is changed."""
        steps, firsts, seconds = keep(params, states, "step", "exp_avg", "exp_avg_sq")
        numbers = count(steps)
        directions = self.directions(grads, firsts, seconds, numbers, group)
        for w, u, projected, t in zip(params, directions, projections, numbers, strict=True):
            ratio = group["wd_ratio"] if projected else 1.0
            u = projected(u) if projected else u  # before the weight shrinks
            if group["weight_decay"]:
                w.mul_(1 - group["lr"] * group["weight_decay"] * ratio)
            w.add_(u, alpha=-group["lr"] / (1 - group["betas"][0] ** t))

    def directions(self, grads, firsts, seconds, numbers, group) -> list[Tensor]:
        """Move the moments, and return Adam's directions without the correction of the first."""
        beta, beta_square = group["betas"]
        directions = [torch.empty_like(m) for m in firsts]
        roots = [(1 - beta_square**t) ** 0.5 for t in numbers]

        def work(directions, grads, firsts, seconds, roots):
            move_moments(grads, firsts, seconds, group["betas"])
            below = torch._foreach_sqrt(seconds)
            torch._foreach_div_(below, roots)
            torch._foreach_add_(below, group["eps"])
            above = torch._foreach_lerp(grads, firsts, beta) if group["nesterov"] else firsts
            for u, a, b in zip(directions, above, below, strict=True):
                torch.div(a, b, out=u)

        entrywise(work, directions, grads, firsts, seconds, roots)
        return directions
