"""Clipped momentum: an average of gradients whose entries were clipped."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, keep, settings


@method("clipped-momentum", paper="An example of the tests (normkit, 2026)", shape="...", evidence="equations")
class ClippedMomentum(Optimizer):
    """Average gradients whose entries were clipped, and step along the average.

    For gradients with outliers, of which an entry moves the average by no more than the bound.

        m <- momentum m + (1 - momentum) clip(g, -bound, bound)
        w <- w - lr m

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old average.
        bound: the largest entry of a gradient.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``exp_avg``.

    An example of the tests (normkit, 2026).
    """

    state_names = frozenset({"exp_avg"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        momentum: float = 0.9,
        bound: float = 1.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "bound", group["bound"], 0.0)

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        (averages,) = keep(params, states, "exp_avg")
        for p, g, average in zip(params, grads, averages, strict=True):
            average.lerp_(g.clamp(-group["bound"], group["bound"]), 1 - group["momentum"])
            p.sub_(group["lr"] * average)
