"""LARS: a learning rate for each tensor, by its length over its gradient's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, settings
from normkit.gradient._sharded import together


@method(
    "lars",
    paper="Large Batch Training of Convolutional Networks (You et al., 2017), arXiv 1708.03888",
    shape="...",
    example={"lr": 0.05, "weight_decay": 0.1},
    replaces=("sgd",),
    evidence="library",
    provenance="timm, in float64",
)
class LARS(Optimizer):
    """Scale each tensor's gradient to a share of the length of its weight, then take SGD's step.

    For large batches, with which one learning rate is too much for some layers. At usual batches SGD needs no such
    scaling; for transformers take ``lamb``.

    If weight_decay is not 0, or with always,

        q = trust |w| / (|g| + weight_decay |w| + eps), or 1 where |w| or |g| is 0;    with clip  q <- min(q / lr, 1)
        g <- (g + weight_decay w) q

    and then, b being g at first,

        b <- momentum b + (1 - dampening) g,    w <- w - lr b, or w - lr (g + momentum b) with nesterov

    Without momentum the step is -lr g. A group without decay gets plain SGD, which is how gains and biases are let be.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        dampening: the share of a gradient that is not gathered, except of the first.
        weight_decay: the share of the weight that is added to the gradient.
        nesterov: look ahead along the momentum.
        trust: the share of a weight's length that a gradient gets.
        eps: added to the length that divides.
        clip: make no step longer than SGD's.
        always: scale what does not decay too.
        maximize: go up instead of down.
        foreach: taken for the sake of others: a parameter at a time is as fast.

    State of a parameter: ``momentum_buffer`` with momentum, else none.

    Large Batch Training of Convolutional Networks (You et al., 2017), arXiv 1708.03888; ``clip`` is NVIDIA's LARC.
    """

    state_names = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1.0,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        trust: float = 0.001,
        eps: float = 1e-8,
        clip: bool = False,
        always: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "trust", group["trust"], 0.0)
        check.number(self, "dampening", group["dampening"], 0.0, 1.0)
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ValueError(
                f"{type(self).__name__}: nesterov wants a momentum above 0 and no dampening, not momentum="
                f"{group['momentum']} and dampening={group['dampening']}"
            )

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        for p, grad, state in zip(params, grads, states, strict=True):
            g = self.scaled(p, grad, group) if group["weight_decay"] or group["always"] else grad
            if group["momentum"]:
                first = "momentum_buffer" not in state
                b = state.setdefault("momentum_buffer", torch.zeros_like(p, memory_format=torch.preserve_format))
                b.mul_(group["momentum"]).add_(g, alpha=1 if first else 1 - group["dampening"])
                g = g + group["momentum"] * b if group["nesterov"] else b
            p.sub_(g * group["lr"])

    def scaled(self, p: Tensor, g: Tensor, group: dict) -> Tensor:
        """A gradient with the decay in it, scaled by the ratio of lengths."""
        weight, length, decay = together([p]), together([g]), group["weight_decay"]
        ratio = group["trust"] * weight / (length + decay * weight + group["eps"])
        ratio = torch.where((weight > 0) & (length > 0), ratio, 1.0)
        if group["clip"]:
            ratio = (ratio / group["lr"]).clamp(max=1.0)
        return (g + decay * p) * ratio.to(p.dtype)
