"""LAMB: Adam with a learning rate for each tensor, by its length over its step's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, keep, move_moments, settings
from normkit.gradient._sharded import together


@method(
    "lamb",
    paper="Large Batch Optimization for Deep Learning: Training BERT in 76 minutes (You et al., 2019), "
    "arXiv 1904.00962",
    shape="...",
    replaces=("adam", "adamw"),
    evidence="library",
    provenance="timm, in float64",
)
class LAMB(Optimizer):
    """Scale Adam's step of each tensor to the length of its weight.

    For large batches of transformers. At usual batches AdamW needs no such scaling.

    Of all gradients together, of length N, g <- g / max(1, N / max_grad_norm); then with c1 = 1 - b1^t and c2 = 1 -
    b2^t of the group's count t of steps, or 1 without correct_bias,

        m <- b1 m + (1 - b1) g,    v <- b2 v + (1 - b2) g^2
        u = (m / c1) / (sqrt(v / c2) + eps) + weight_decay w
        q = |w| / |u|, or 1 where either is 0;    with clip  q <- min(q, 1)
        w <- w - lr q u

    Where weight_decay is 0, q = 1 unless always: it is plain Adam. With decoupled w <- w (1 - lr weight_decay) comes
    first, in place of the last term of u.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: added to the root of the second moment.
        weight_decay: the share of the weight that is added to the step.
        correct_bias: correct the moments for their start at 0.
        max_grad_norm: the length that all gradients together are cut to; None: they are not.
        clip: make no step longer than Adam's.
        always: scale what does not decay too.
        decoupled: let the weight decay before its step, as in AdamW.
        maximize: go up instead of down.
        foreach: taken for the sake of others: the moments of a group move together.

    State of a parameter: ``exp_avg``, ``exp_avg_sq``; of a group: ``steps``.

    Large Batch Optimization for Deep Learning (You et al., 2019), arXiv 1904.00962. Differs from timm's code in:
    ``max_grad_norm`` is None by default, theirs 1.
    """

    state_names = frozenset({"exp_avg", "exp_avg_sq"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        correct_bias: bool = True,
        max_grad_norm: float | None = None,
        clip: bool = False,
        always: bool = False,
        decoupled: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()), steps=0)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        if group["max_grad_norm"] is not None:
            check.number(self, "max_grad_norm", group["max_grad_norm"], 0.0, open_low=True)

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Measure all gradients together, and count the step of each group."""
        limited = any(group["max_grad_norm"] is not None for _, group in work)
        grads = [p.grad for params, _ in work for p in params if p.grad is not None]
        self.length = together(grads) if limited else torch.ones(())
        for _, group in work:
            group["steps"] += 1

    @torch._disable_dynamo  # the count of a group is a number, for each of which a step would be compiled anew
    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        firsts, seconds = keep(params, states, "exp_avg", "exp_avg_sq")
        if group["max_grad_norm"] is not None:
            cut = (self.length / group["max_grad_norm"]).clamp(min=1.0)
            grads = [g / cut.to(g) for g in grads]
        move_moments(grads, firsts, seconds, group["betas"])
        first, second = (1 - b ** group["steps"] if group["correct_bias"] else 1.0 for b in group["betas"])
        for p, m, v in zip(params, firsts, seconds, strict=True):
            self.step_along(p, (m / first) / ((v / second).sqrt() + group["eps"]), group)

    def step_along(self, p: Tensor, u: Tensor, group: dict) -> None:
        """Move one parameter along Adam's direction."""
        decay = group["weight_decay"]
        if group["decoupled"]:
            p.mul_(1 - group["lr"] * decay)
        elif decay:
            u = u + decay * p
        if decay or group["always"]:
            weight, length = together([p]), together([u])
            ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
            u = u * (ratio.clamp(max=1.0) if group["clip"] else ratio).to(p.dtype)
        p.sub_(u * group["lr"])
