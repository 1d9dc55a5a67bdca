"""Adaptive gradient clipping: no unit's gradient may be long against its weight."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._based import Based
from normkit.gradient._optimizer import Groups, listed
from normkit.gradient._sharded import place, reduce
from normkit.statistics import accurate

LEAST = 1e-6  # floor of a gradient's length


@method(
    "agc",
    paper="High-Performance Large-Scale Image Recognition Without Normalization (Brock et al., 2021), arXiv 2102.06171",
    shape="...",
    example={"lr": 0.05},
    aliases=("adaptive-gradient-clipping",),
)
class AGC(Based):
    """Clip each unit's gradient to a share of the length of its weight, then take another optimizer's step.

    For networks without norms at large batches, such as those of ``scaled-weight-standardization``. For transformers
    whose losses spike there are ``stable-adamw`` and ``stable-spam``, which compare a gradient with those before it.

    With U the length of a unit's weights, of all axes but the first, or of the whole tensor where no two axes are
    longer than 1,

        where U(G) > limit = clipping max(U(W), eps):  G <- G limit / max(U(G), 1e-6)

    The base's weight decay comes after and is not clipped. The authors leave the last linear layer alone: a group with
    ``clipping=None``.

    Args:
        params: parameters, or groups of them.
        base: the optimizer that takes the step, of torch.optim or of the catalogue: ``"sgd"``, ``"adamw"``, ``"muon"``.
        lr: its learning rate.
        clipping: the share; 0.01 at batches of 4096, more at smaller ones; None: no clipping.
        eps: the least length of a weight, so that zeros can move.
        base_kwargs: what else the base takes: momentum, nesterov, weight_decay.
        maximize: go up instead of down.

    State of a parameter: the base's.

    High-Performance Large-Scale Image Recognition Without Normalization (Brock et al., 2021), arXiv 2102.06171. Differs
    from the authors' code in: ``nesterov=False`` turns it off.
    """

    renamed = MappingProxyType({"eps": "clipping_eps"})

    def __init__(
        self,
        params: Groups,
        *,
        base: str = "sgd",
        lr: float,
        clipping: float | None = 0.01,
        eps: float = 1e-3,
        maximize: bool = False,
        **base_kwargs: Any,
    ):
        own = {"clipping": clipping, "eps": eps, "maximize": maximize}
        super().__init__(params, base, own, {"lr": lr, "maximize": maximize, **base_kwargs})

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.eps(self, group["clipping_eps"])
        if group["clipping"] is not None:
            check.number(self, "clipping", group["clipping"], 0.0)

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient, clipped."""
        assert p.grad is not None
        return p.grad if group["clipping"] is None else clip(p, p.grad, group["clipping"], group["clipping_eps"])


def adaptive_clip_grad_(params: Tensor | Iterable[Tensor], clipping: float = 0.01, eps: float = 1e-3) -> None:
    """Clip the gradients of parameters in place, each unit's to a share of the length of its weight."""
    check.number("adaptive_clip_grad_", "clipping", clipping, 0.0)
    check.eps("adaptive_clip_grad_", eps)
    clipped = [p for p in listed(params) if p.grad is not None]
    for p in clipped:
        check.dense("adaptive_clip_grad_", p.grad, "each gradient of params")
    with torch.no_grad():
        for p in clipped:
            p.grad.copy_(clip(p, p.grad, clipping, eps))


def clip(w: Tensor, g: Tensor, clipping: float, eps: float) -> Tensor:
    """Return a gradient, clipped to a share of the length of its weight unit by unit."""
    limit, length = clipping * unit_length(w).clamp(min=eps), unit_length(g)
    return place(torch.where(length > limit, g * (limit / length.clamp(min=LEAST)), g).to(g.dtype), g)


def unit_length(x: Tensor) -> Tensor:
    """The length of each unit, the first axis, to be broadcast; of a vector, its whole.

    >>> unit_length(torch.ones(2, 4)), unit_length(torch.ones(4, 1))
    (tensor([[2.],
            [2.]]), tensor([[2.]]))
    """
    flat = sum(size > 1 for size in x.shape) <= 1
    axes = tuple(range(x.dim())) if flat else tuple(range(1, x.dim()))
    return reduce(torch.linalg.vector_norm(accurate(x), dim=axes, keepdim=True))
