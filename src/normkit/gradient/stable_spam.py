"""Stable-SPAM: Adam on gradients without spikes, of a length that history gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import MOMENTS, Groups, Optimizer, adam, entrywise, keep, settings
from normkit.gradient._sharded import is_sharded, largest_size, whole
from normkit.statistics import accurate

Clip = tuple[Tensor, Tensor] | None  # the ceiling of a gradient's entries, and its share of the largest one
Mark = tuple[Clip, Tensor]  # and the factor that gives the gradient the length of its past
MEANS = frozenset({"m_norm_t", "v_norm_t", "m_max_t"})  # of lengths and of largest entries


@method(
    "stable-spam",
    paper="Stable-SPAM: How to Train in 4-Bit More Stably than 16-Bit Adam (Huang et al., 2025), arXiv 2502.17055",
    shape="...",
    replaces=("adam", "adamw"),
)
class StableSPAM(Optimizer):
    """Clip each gradient's largest entries, give it the length that its past ones had, then take Adam's step.

    For training in few bits, or any that has spikes. Of one tensor, with s the number of its steps:

        h = (running mean of max|g|, rate gamma3) / (1 - gamma3^s);    where |g| > h:  g <- g h / max|g|
        a, b = running means of |g| and |g|^2, rates gamma1 and gamma2, each over 1 - gamma^s
        g <- g / |g| a / (sqrt(b) + eps),    then Adam's step with g

    With ``total_T``, gamma1 and the first beta fall on a cosine to ``eta_min`` of their value, and rise again behind
    it.

    Every ``update_proj_gap`` steps the moments start anew: that very step still uses the old ones with the corrections
    of a first step, and leaves nothing in the new ones. The authors' code does this.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: added to the denominators.
        weight_decay: the share of a weight that is taken off before a step, times the learning rate.
        amsgrad: divide by the largest second moment so far.
        gamma1: share of the old value in the mean of lengths; -1: that of the first moment.
        gamma2: share of the old value in the mean of squared lengths.
        gamma3: share of the old value in the mean of largest entries.
        total_T: steps of the cosine; None: none.
        eta_min: where the cosine ends.
        update_proj_gap: steps from one new start of the moments to the next; 0: never.
        maximize: go up instead of down.
        foreach: take Adam's steps of a group together; None: not on CPU.

    State of a parameter: ``step``, ``exp_avg``, ``exp_avg_sq``, ``m_norm_t``, ``v_norm_t``, ``m_max_t``, with amsgrad
    ``max_exp_avg_sq``; of a group: ``total_steps``.

    Stable-SPAM (Huang et al., 2025), arXiv 2502.17055.
    """

    state_names = MOMENTS | {"max_exp_avg_sq", *MEANS}
    exact = MEANS
    later = frozenset({"gamma1", "gamma2", "gamma3", "total_T", "eta_min", "update_proj_gap"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        gamma1: float = 0.7,
        gamma2: float = 0.9,
        gamma3: float = 0.999,
        total_T: int | None = None,
        eta_min: float = 0.5,
        update_proj_gap: int = 1000,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()), total_steps=0)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        for name in ("gamma1", "gamma2", "gamma3"):
            value, least = group[name], -1.0 if name == "gamma1" else 0.0
            if check.number(self, name, value, least) >= 1 or -1 < value < 0:
                raise ValueError(f"{type(self).__name__}: {name} must lie in [0, 1), not {value}")
        if group["total_T"] is not None:
            check.size(self, "total_T", group["total_T"])
        check.number(self, "eta_min", group["eta_min"], 0.0, 1.0)
        check.size(self, "update_proj_gap", group["update_proj_gap"], least=0)

    def add_param_group(self, param_group: dict) -> None:
        """Add a group, which joins the count of steps."""
        done = self.param_groups[0]["total_steps"] if self.param_groups else 0
        super().add_param_group({"total_steps": done, **param_group})

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Count the step."""
        for _, group in work:
            group["total_steps"] += 1

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        share, gap = cosine_share(group), group["update_proj_gap"]
        anew = gap != 0 and group["total_steps"] % gap == 0
        keep(params, states, "step", "exp_avg", "exp_avg_sq")
        marks = [measured(g, state, share, group) for g, state in zip(grads, states, strict=True)]
        if anew:
            for state in states:
                state["step"].zero_()
        betas = (group["betas"][0] * share, group["betas"][1])
        settings = {name: group[name] for name in ("lr", "eps", "weight_decay")}
        adam(params, grads, states, betas=betas, amsgrad=group["amsgrad"], change=calm, marks=marks, **settings)
        if anew:
            for state in states:
                state["exp_avg"].zero_(), state["exp_avg_sq"].zero_()


def cosine_share(group: dict) -> float:
    """The part of gamma1 and of the first beta that the cosine leaves."""
    if group["total_T"] is None:
        return 1.0
    least, turn = group["eta_min"], math.pi * group["total_steps"] / (group["total_T"] + 1)
    return least + (1 - least) * (1 + math.cos(turn)) / 2


def measured(g: Tensor, state: dict, share: float, group: dict) -> Mark:
    """Move the means of a gradient, and return what takes its spikes off and gives it the length of its past."""
    gamma1, gamma2, gamma3 = (group[name] for name in ("gamma1", "gamma2", "gamma3"))
    for name in ("m_norm_t", "v_norm_t", "m_max_t"):
        state.setdefault(name, torch.zeros((), dtype=accurate(g.new_empty(0)).dtype, device=g.device))
    step, rate = int(state["step"]) + 1, (group["betas"][0] if gamma1 == -1 else gamma1) * share
    most = accurate(largest_size(g))
    ceiling = move(state["m_max_t"], most, gamma3) / (1 - gamma3**step)
    spiky = not g.is_cpu or bool(most > ceiling)  # elsewhere it costs less not to ask
    clip = (ceiling, ceiling / most) if spiky else None
    length = accurate(length_without_spikes(g, clip))
    mean = move(state["m_norm_t"], length, rate) / (1 - rate**step)
    square = move(state["v_norm_t"], length.square(), gamma2) / (1 - gamma2**step)
    return clip, torch.where(length > 0, mean / (square.sqrt() + group["eps"]) / length, 1.0)


def without_spikes(g: Tensor, clip: Clip) -> Tensor:
    """Shrink the entries above the ceiling."""
    return g if clip is None else torch.where(g.abs() > clip[0], g * clip[1], g)


def length_without_spikes(g: Tensor, clip: Clip) -> Tensor:
    """The length of a gradient whose spikes are shrunk; on CPU, of one block after the other."""
    if clip is None or is_sharded([g]) or not g.is_cpu:
        return whole(without_spikes(g, clip).norm())
    lengths: list[Tensor] = []
    entrywise(lambda blocks: lengths.append(without_spikes(blocks[0], clip).norm()), [g])
    return torch.stack(lengths).norm()


def calm(grads: Sequence[Tensor], marks: Sequence[Mark]) -> list[Tensor]:
    """Gradients without their spikes, each of the length that its mark gives it."""
    calm = [without_spikes(g, clip) for g, (clip, _) in zip(grads, marks, strict=True)]
    scaled = torch._foreach_mul(calm, [scale for _, scale in marks])
    return [x.to(g.dtype) for x, g in zip(scaled, grads, strict=True)]  # a single number takes the scale's type


def move(mean: Tensor, value: Tensor, rate: float) -> Tensor:
    """Move a running mean."""
    return mean.mul_(rate).add_(value, alpha=1 - rate)
