"""Signum: the sign of momentum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, keep, multiply, settings


@method(
    "signum",
    paper="signSGD: Compressed Optimisation for Non-Convex Problems (Bernstein et al., 2018), arXiv 1802.04434",
    shape="...",
    replaces=("adamw", "sgd"),
    evidence="library",
    provenance="Emerging-Optimizers, in float64",
)
class Signum(Optimizer):
    """Step by the sign of the momentum, equally far in each entry.

    For one tensor of state, and for asking what a sign alone does of Adam's work. ``lion`` takes a sign as well, with
    one share for the step and another for the momentum. Without momentum noisy entries keep full steps.

    The steepest descent in the largest entry. With g the gradient,

        m <- momentum m + (1 - momentum) g
        u = sign(m), or sign(momentum m + (1 - momentum) g) with nesterov
        w <- w (1 - lr weight_decay) - lr u

    and with ``shape_scale`` u of a matrix of r rows and c columns is multiplied by 2 / (r + c); of a kernel (out, in,
    ...) they are out and the rest. The sign of 0 is 0. Without momentum it is signSGD.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        shape_scale: make steps of large matrices smaller.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``exp_avg``.

    signSGD (Bernstein et al., 2018), arXiv 1802.04434; the scale by shape: arXiv 2506.07254.
    """

    state_names = frozenset({"exp_avg"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        shape_scale: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        (firsts,) = keep(params, states, "exp_avg")
        rates = [-group["lr"] * (shape_scale(p) if group["shape_scale"] else 1.0) for p in params]
        share = 1 - group["momentum"]

        def work(params, grads, firsts, rates):
            torch._foreach_lerp_(firsts, grads, share)
            ahead = torch._foreach_lerp(firsts, grads, share) if group["nesterov"] else firsts
            if group["weight_decay"]:
                multiply(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, torch._foreach_mul(torch._foreach_sign(ahead), rates))

        entrywise(work, params, grads, firsts, rates)


def shape_scale(p: Tensor) -> float:
    """2 / (rows + columns) of a matrix, of kernels as matrices; 1 of a vector."""
    return 2 / max(1, p.shape[0] + p.shape[1:].numel()) if p.dim() > 1 else 1.0
