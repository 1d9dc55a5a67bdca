"""StableAdamW: AdamW whose step is short where a gradient is far larger than those before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, keep, move_moments, settings
from normkit.gradient._sharded import together


@method(
    "stable-adamw",
    paper="Stable and low-precision training for large-scale vision-language models (Wortsman et al., 2023), "
    "arXiv 2304.13013",
    shape="...",
    replaces=("adam", "adamw"),
    evidence="library",
    provenance="pytorch_optimizer, in float64",
)
class StableAdamW(Optimizer):
    """Divide AdamW's learning rate by how much larger a tensor's gradient is than was expected.

    For losses that spike, where the second moment learns too late of a layer's new gradients. For few bits take
    ``stable-spam``.

    With t the group's count of steps, and c = b (1 - b^(t - 1)) / (1 - b^t) of each beta,

        m <- c1 m + (1 - c1) g,    v <- c2 v + (1 - c2) g^2
        rate = lr / max(1, sqrt(mean of g^2 / max(v, eps^2)))
        w <- w (1 - rate weight_decay) - rate m / (sqrt(v) + eps)

    The mean is over one tensor. A parameter that had no gradient so far begins with the shares of the group's later
    step.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: added to the root of the second moment.
        weight_decay: the share of a weight that is taken off before a step, times its rate.
        maximize: go up instead of down.
        foreach: taken for the sake of others: the moments of a group move together.

    State of a parameter: ``exp_avg``, ``exp_avg_sq``; of a group: ``steps``.

    Stable and low-precision training (Wortsman et al., 2023), arXiv 2304.13013; the clipping is Adafactor's, arXiv
    1804.04235.
    """

    state_names = frozenset({"exp_avg", "exp_avg_sq"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()), steps=0)

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Count the step of each group."""
        for _, group in work:
            group["steps"] += 1

    @torch._disable_dynamo  # the count of a group is a number, for each of which a step would be compiled anew
    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        firsts, seconds = keep(params, states, "exp_avg", "exp_avg_sq")
        t, eps = group["steps"], group["eps"]
        move_moments(grads, firsts, seconds, tuple(b * (1 - b ** (t - 1)) / (1 - b**t) for b in group["betas"]))
        for p, g, m, v in zip(params, grads, firsts, seconds, strict=True):
            least = max(eps**2, torch.finfo(v.dtype).tiny)
            size = together([g / v.clamp(min=least).sqrt()]) / max(1, p.numel()) ** 0.5
            rate = group["lr"] / size.clamp(min=1.0)
            p.mul_(1 - rate * group["weight_decay"])
            p.sub_(m / (v.sqrt() + eps) * rate)
