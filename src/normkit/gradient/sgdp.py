"""SGDP: momentum without the part of the step that only makes weights longer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, keep, multiply, settings
from normkit.gradient._projection import projection


@method(
    "sgdp",
    paper="AdamP: Slowing Down the Slowdown for Momentum Optimizers on Scale-invariant Weights (Heo et al., 2021), "
    "arXiv 2006.08217",
    shape="...",
    example={"lr": 0.05, "momentum": 0.9},
    replaces=("sgd",),
)
class SGDP(Optimizer):
    """Take a step along the momentum, less its share along the weight where the weight's length does not matter.

    For convolutional networks with norms that are trained by SGD with momentum, whose weights grow and so slow down. It
    is ``adamp`` on SGD's step. A network without norms has little that it would project.

    AdamP's test and projection, on the direction of SGD:

        b <- momentum b + (1 - dampening) g
        u = b, or g + momentum b with nesterov, then projected where g stands nearly upright on w; see AdamP
        w <- w (1 - lr weight_decay ratio / (1 - momentum)) - lr u

    Without nesterov the projection also takes the share off the stored b, as the authors' code does.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        dampening: the share of the gradient that is left out, from the first step on.
        weight_decay: the share of a weight that is taken off a step, times the rate that momentum brings it to.
        nesterov: look ahead along the momentum.
        eps: floor of the lengths in the cosine, and added to the length of the weight.
        delta: how far from upright a gradient may stand; 0 projects nothing.
        wd_ratio: the part of the decay that is left where the step is projected.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``momentum``.

    AdamP (Heo et al., 2021), arXiv 2006.08217.
    """

    state_names = frozenset({"momentum"})

    def __init__(
        self,
        params: Groups,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        eps: float = 1e-8,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "dampening", group["dampening"], 0.0, 1.0)
        check.number(self, "delta", group["delta"], 0.0)
        check.number(self, "wd_ratio", group["wd_ratio"], 0.0, 1.0)

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        momentum, rate = group["momentum"], group["lr"]
        (buffers,) = keep(params, states, "momentum")

        def move(buffers, grads):
            multiply(buffers, momentum)
            torch._foreach_add_(buffers, grads, alpha=1 - group["dampening"])

        entrywise(move, buffers, grads)
        for w, g, b in zip(params, grads, buffers, strict=True):
            projected = projection(w, g, group["delta"], group["eps"])
            u = g.add(b, alpha=momentum) if group["nesterov"] else b
            if projected:
                u = projected(u)
                if not group["nesterov"]:
                    b.copy_(u)
            ratio = group["wd_ratio"] if projected else 1.0
            if group["weight_decay"]:
                w.mul_(1 - rate * group["weight_decay"] * ratio / (1 - momentum))
            w.add_(u, alpha=-rate)
