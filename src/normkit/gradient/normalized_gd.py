"""Normalized gradient descent: steps of one length, whatever the gradient's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, keep, multiply, settings
from normkit.gradient._sharded import whole
from normkit.statistics import accurate


@method(
    "normalized-gd",
    paper="Beyond Convexity: Stochastic Quasi-Convex Optimization (Hazan et al., 2015), arXiv 1507.02030",
    evidence="equations",
    shape="...",
    provenance="the equations, in float64; a baseline of several papers, none of which has code of its own for it",
    exempt={"groups": "the length of a step is that of all groups together"},
    replaces=("sgd",),
)
class NormalizedGD(Optimizer):
    """Divide the gradient by its length, of all parameters or of each tensor, then step.

    For losses with plateaus and cliffs, where a gradient's length says little about how far to go. It never comes
    closer than a step, so the learning rate must fall. With noisy gradients take ``nsgd``, which averages before it
    normalizes.

    With N the length of all gradients together, or of the one tensor,

        u = g / (N + eps),    b <- momentum b + u with momentum
        w <- w (1 - lr weight_decay) - lr (b, or u without momentum)

    Momentum gathers normalized gradients. A gradient of zero gives a step of zero.

    Args:
        params: parameters, or groups of them.
        lr: the length of a step.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        eps: added to the length.
        scope: ``"global"`` or ``"tensor"``: whose length it is.
        maximize: go up instead of down.
        foreach: taken for the sake of others, and ignored: a group is worked on together.

    State of a parameter: ``momentum_buffer`` with momentum, else none.

    Normalized gradient descent, as in Beyond Convexity (Hazan et al., 2015), arXiv 1507.02030.
    """

    state_names = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1.0,
        momentum: float = 0.0,
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

    def parts(self, params: list[Tensor], group: dict) -> Iterator[list[Tensor]]:
        """Work on all parameters of a group together, since they may have one length."""
        yield params

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        if group["scope"] == "global":
            common = length([p.grad for g in self.param_groups for p in g["params"] if p.grad is not None])
            own = [common.to(g.device) for g in grads]
        else:
            own = [length([g]) for g in grads]
        scales = [(1 / (norm + group["eps"])).to(p.dtype) for norm, p in zip(own, params, strict=True)]
        buffers = keep(params, states, "momentum_buffer") if group["momentum"] else []

        def work(params, grads, scales, buffers=None):
            steps = torch._foreach_mul(grads, scales)
            if buffers is not None:
                multiply(buffers, group["momentum"])
                torch._foreach_add_(buffers, steps)
            if group["weight_decay"]:
                multiply(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, steps if buffers is None else buffers, alpha=-group["lr"])

        entrywise(work, params, grads, scales, *buffers)


def length(grads: Sequence[Tensor]) -> Tensor:
    """The length of several gradients together."""
    if not grads:
        return torch.zeros(())
    lengths = [whole(torch.linalg.vector_norm(g, dtype=accurate(g.new_empty(0)).dtype)) for g in grads]
    return torch.linalg.vector_norm(torch.stack([x.to(lengths[0].device) for x in lengths]))
