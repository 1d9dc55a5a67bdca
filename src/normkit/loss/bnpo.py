"""BNPO: rewards turned into advantages, weighted by a Beta distribution fitted to the prompts' success."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

MODES = ("bnpo", "grpo", "dr-grpo", "rloo")
MOST = 1e6


@method(
    "bnpo",
    paper="BNPO: Beta Normalization Policy Optimization (Xiao et al., 2025), arXiv 2506.02864",
    shape="N : unit",
    over="N",
    inputs={"group": "N : index 3"},
    exempt={"gradcheck": "advantages are constants"},
)
@torch.no_grad()
def bnpo(
    rewards: Tensor,
    group: Tensor,
    *,
    mode: str = "bnpo",
    min_value: float = 0.0,
    max_value: float = 1.0,
    eps: float = 1e-6,
) -> Tensor:
    """Subtract from each reward the mean of its prompt, and weight it by how rare such a mean is.

    For policy gradients with rewards of 0 and 1: the variance of the gradient is least where the weight is one over a
    Beta density of the prompts' success rates p, fitted anew to every batch. With r the reward moved to [0, 1], mu and
    var the mean and unbiased variance of p over prompts, k = mu (1 - mu) / var - 1,

        alpha = max(1 + k mu / 3, 1),   beta = max(1 + k (1 - mu) / 3, 1)
        A = (r - p) min(1 / Beta(p; alpha, beta), 1e6)

    One prompt alone, or prompts that are all alike, have weight 1. A prompt with a single sample has p = 0. The other
    modes, with m, s the mean and unbiased deviation of the prompt's rewards (a single sample: 0 and 1), n its samples:

        grpo (r - m) / (s + eps),   dr-grpo r - m,   rloo (r - m) n / (n - 1), r of a single sample

    Rewards that are all equal have advantage 0 in every mode, but for single samples.

    Args:
        rewards: (N,).
        group: the prompts' numbers, int64 (N,), in any order.
        mode: which of the four.
        min_value, max_value: what rewards lie between; for bnpo.
        eps: added to the deviation; for grpo.

    Advantages (N,) carry no gradient. Several rewards are each normalized alone, and the advantages averaged.

    BNPO (Xiao et al., 2025), arXiv 2506.02864.

    Differs from the authors' code in: prompts that are all alike have weight 1, where the formula has infinities.
    """
    check.values("bnpo", "rewards", rewards, (None,), rewards)
    check.shape("bnpo", "group", group, rewards.shape, rewards)
    if group.dtype is not torch.int64:
        raise TypeError(f"bnpo: group must be an int64 tensor, not {group.dtype}")
    check.choice("bnpo", "mode", mode, MODES)
    check.eps("bnpo", eps)
    low, high = check.number("bnpo", "min_value", min_value), check.number("bnpo", "max_value", max_value)
    wide = accurate(rewards)
    order = group.sort()
    prompt = order.indices[torch.searchsorted(order.values, group.contiguous())]  # for each sample one of its prompt
    count = _total(torch.ones_like(wide), prompt)
    if mode != "bnpo":
        return _plain(wide, prompt, count, mode, eps).to(rewards.dtype)
    if not low < high:
        raise ValueError(f"bnpo: min_value must be below max_value={max_value}, not {min_value}")
    if not rewards.is_meta and not ((wide >= low) & (wide <= high)).all():
        raise ValueError(f"bnpo: rewards must lie in [{low}, {high}], from min_value to max_value")
    return _beta((wide - low) / (high - low), prompt, count).to(rewards.dtype)


def _total(values: Tensor, prompt: Tensor) -> Tensor:
    """For each sample the sum over its prompt."""
    return torch.zeros_like(values).index_add(0, prompt, values)[prompt]


def _plain(r: Tensor, prompt: Tensor, count: Tensor, mode: str, eps: float) -> Tensor:
    single = count == 1
    r = torch.where(single, r, r - r[prompt])  # of equal rewards exactly 0, whatever a sum of them is rounded to
    centered = r - torch.where(single, 0, _total(r, prompt) / count)
    if mode == "dr-grpo":
        return centered
    if mode == "rloo":
        return centered * torch.where(single, 1, count / (count - 1).clamp(min=1))
    deviation = (_total(centered.square(), prompt) / (count - 1).clamp(min=1)).sqrt()
    return centered / (torch.where(single | (deviation == 0), 1, deviation) + eps)


def _beta(r: Tensor, prompt: Tensor, count: Tensor) -> Tensor:
    first = r[prompt]
    p = torch.where(count == 1, 0, first + _total(r - first, prompt) / count)
    share = 1 / count  # each prompt counts once, however many samples it has
    prompts = share.sum()
    mean = (p * share).sum() / prompts.clamp(min=1)
    var = ((p - mean).square() * share).sum() / (prompts - 1).clamp(min=1)
    spread = (var > 1e-12) & (prompts > 1.5)
    k = mean * (1 - mean) / torch.where(spread, var, 1) - 1
    alpha, beta = (1 + k * mean / 3).clamp(min=1), (1 + k * (1 - mean) / 3).clamp(min=1)
    log_density = torch.xlogy(alpha - 1, p) + torch.xlogy(beta - 1, 1 - p)
    log_density = log_density + torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
    weight = torch.where(spread, (-log_density).exp().clamp(max=MOST), 1)
    return weight * (r - p)
