"""NSGD: momentum, normalized after it was gathered."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, gradients, keep, settings
from normkit.gradient._sharded import together


@method(
    "nsgd",
    paper="Momentum Improves Normalized SGD (Cutkosky & Mehta, 2020), arXiv 2002.03305",
    shape="...",
    replaces=("sgd",),
    evidence="equations",
    provenance="the paper's equations, in float64",
    exempt={"groups": "the length of a step is that of all groups together"},
)
class NSGD(Optimizer):
    """Divide the momentum by its length, of all parameters or of each tensor, then step.

    For SGD with small, noisy batches, where steps should have one length from the start; in the paper's analysis
    momentum makes large batches needless. The rate must fall at the end, as with ``normalized-gd``. Where layers differ
    in scale, take ``lars``.

    With N the length of the momenta of all parameters that have a gradient, or of the one tensor,

        m <- momentum m + (1 - momentum) g
        w <- w (1 - lr weight_decay) - lr m / (N + eps)

    A momentum of zero gives a step of zero.

    Args:
        params: parameters, or groups of them.
        lr: the length of a step.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        eps: added to the length.
        scope: ``"global"`` or ``"tensor"``: whose length it is.
        maximize: go up instead of down.
        foreach: taken for the sake of others: a parameter at a time is as fast.

    State of a parameter: ``momentum_buffer``.

    Momentum Improves Normalized SGD (Cutkosky & Mehta, 2020), arXiv 2002.03305.
    """

    state_names = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-2,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        eps: float = 1e-12,
        scope: str = "global",
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "scope", group["scope"], ("global", "tensor"))

    @torch._disable_dynamo  # what it leaves on the optimizer is seen by no graph
    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Move the momenta of all groups, and measure them together."""
        momenta: list[Tensor] = []
        for params, group in work:
            (own,) = keep(params, [self.state[p] for p in params], "momentum_buffer")
            share = 1 - group["momentum"]
            if params:
                entrywise(
                    lambda ms, gs, share=share: torch._foreach_lerp_(ms, gs, share), own, gradients(params, group)
                )
            momenta += own
        self.length = together(momenta)

    @torch._disable_dynamo
    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        (momenta,) = keep(params, states, "momentum_buffer")
        for p, m in zip(params, momenta, strict=True):
            length = self.length.to(p.device) if group["scope"] == "global" else together([m])
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.sub_(m * (group["lr"] / (length + group["eps"])).to(m.dtype))
