"""The regularized relevance reward: what a retriever thinks of an answer, kept from being gamed."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

RANGE = 3.5  # of the relevance of a constrained question


@method(
    "regularized-relevance-reward",
    paper="Preference-free Alignment Learning with Regularized Relevance Reward (Kim and Seo, 2024), arXiv 2402.03469",
    shape="N",
    over="T",
    inputs={"tokens": "N T : index 3", "length": "N : index T", "constrained?": "N : bool"},
    aliases={"r3": {}},
    exempt={"gradcheck": "rewards are constants"},
)
@torch.no_grad()
def regularized_relevance_reward(
    relevance: Tensor,
    tokens: Tensor,
    length: Tensor,
    constrained: Tensor | None = None,
    *,
    max_length: int = 512,
    length_incentive: bool = True,
    repetition_penalty: bool = True,
    relevance_scaling: bool = True,
) -> Tensor:
    """Multiply the relevance of a response by its length and by how little it repeats itself.

    For policy gradients without a model of preferences. With n words and R the relevance,

        open question         n / 100 R T          T: different word trigrams / all of them, 1 if n < 3
        constrained question  R / 3.5 max_length / 100 T

    A constrained question, one with a right answer, has no incentive of length: its relevance is stretched to the range
    that lengths give, and not clipped. An empty response gives 0 to an open question, its full relevance to a
    constrained one.

    Args:
        relevance: a retriever's scores, (N,); of constrained questions those of the reference answer.
        tokens: numbers of the words, int64 (N, T), from the left; runs of punctuation are words.
        length: how many of them there are, int64 (N,).
        constrained: which questions are, boolean (N,); None: none.
        max_length: the longest response.
        length_incentive, repetition_penalty: False: a factor of 1.
        relevance_scaling: False: R is 1, and all questions are open.

    Rewards (N,) carry no gradient.

    Preference-free Alignment Learning with Regularized Relevance Reward (2024), arXiv 2402.03469.
    """
    owner = "regularized-relevance-reward"
    check.values(owner, "relevance", relevance, (None,), relevance)
    check.index(owner, "tokens", tokens, (len(relevance), None), 2**62, relevance)
    check.index(owner, "length", length, relevance.shape, tokens.shape[1] + 1, relevance)
    if constrained is not None:
        check.mask(owner, "constrained", constrained, relevance.shape, relevance)
    longest = check.size(owner, "max_length", max_length)
    wide = accurate(relevance)
    different = _different_trigrams(tokens, length.to(wide.dtype)) if repetition_penalty else 1.0
    scale = wide if relevance_scaling else torch.ones_like(wide)
    reward = (length.to(wide.dtype) / 100 if length_incentive else 1.0) * scale
    if constrained is not None and relevance_scaling:
        reward = torch.where(constrained, wide / RANGE * (longest / 100), reward)
    return (reward * different).to(relevance.dtype)


def _different_trigrams(tokens: Tensor, length: Tensor) -> Tensor:
    """The share (N,) of trigrams that are new, 1 where there are none."""
    if tokens.shape[1] < 3 or not len(tokens):
        return torch.ones_like(length)
    words = tokens.unique(return_inverse=True)[1]
    several = int(words.max()) + 1
    pairs = (words[:, :-1] * several + words[:, 1:]).unique(return_inverse=True)[1]
    trigrams = pairs[:, :-1] * several + words[:, 2:]
    count = (length - 2).clamp(min=0)
    mask = torch.arange(trigrams.shape[1], device=tokens.device) < count.unsqueeze(1)
    ordered = torch.where(mask, trigrams, -1).sort(1).values
    new = torch.diff(ordered, dim=1, prepend=torch.full_like(ordered[:, :1], -1)) > 0
    return torch.where(count > 0, new.sum(1) / count.clamp(min=1), 1.0)
