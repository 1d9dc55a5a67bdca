"""Optimizers: the base has the loop over groups, the checks and the state; a method says how parameters move."""

from collections.abc import Sequence

import torch
from torch import Tensor

import normkit as nk
from normkit import check


@nk.method("bounded-momentum", paper="An example for this page", shape="...", evidence="equations", room="robust")
class BoundedMomentum(nk.Optimizer):
    """Average gradients whose entries were bounded, and step along the average.

    For gradients with outliers, of which an entry moves the average by no more than the bound:

        m <- momentum m + (1 - momentum) clip(g, -bound, bound)
        w <- w - lr m

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old average.
        bound: the largest entry of a gradient.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``momentum``.

    An example for this page.
    """

    state_names = frozenset({"momentum"})

    def __init__(
        self,
        params,
        *,
        lr: float = 1e-3,
        momentum: float = 0.9,
        bound: float = 1.0,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(params, lr=lr, momentum=momentum, bound=bound, maximize=maximize, foreach=foreach)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "bound", group["bound"], 0.0)

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        for p, g, state in zip(params, grads, states, strict=True):
            average = state.setdefault("momentum", torch.zeros_like(p))
            average.lerp_(g.clamp(-group["bound"], group["bound"]), 1 - group["momentum"])
            p.sub_(group["lr"] * average)
