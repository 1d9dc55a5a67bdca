"""Reward transform: rewards measured against a reference, so that several can be added."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.columns import number_of
from normkit.kinds import Method
from normkit.statistics import accurate

MODES = {"log_sigmoid": F.logsigmoid, "identity": lambda r: r, "sigmoid": torch.sigmoid}


@method(
    "reward-transform",
    paper="Transforming and Combining Rewards for Aligning Large Language Models (Wang et al., 2024), arXiv 2402.00742",
    evidence="equations",
    shape="N K",
    over="",
    inputs={"reference": "N K"},
    invariant=("shift of reward and reference",),
)
class RewardTransform(Method):
    """Turn each reward into the logarithm of the chance to beat a reference, and add up those of a response.

    For alignment with Bradley-Terry rewards, whose differences are logits: a sum of such logarithms asks that the
    response is good in every property, and what is good already gains little more.

        u_k = log sigmoid(r_k - reference_k),    result = sum_k weights_k u_k

    Args:
        mode: ``"log_sigmoid"``, or ``"sigmoid"`` or ``"identity"`` of the same difference.
        weights: one number a reward, K of them; None: all 1.
        quantile: which quantile :meth:`reference` takes.

    ``transform(rewards, reference)``: (N,) or (N, K) both, or a reference that broadcasts; returns (N,).

    Transforming and Combining Rewards (Wang et al., 2024), arXiv 2402.00742.
    """

    def __init__(self, mode: str = "log_sigmoid", weights: Sequence[float] | None = None, quantile: float = 0.85):
        super().__init__()
        self.mode = check.choice(self, "mode", mode, tuple(MODES))
        self.weights = None if weights is None else check.numbers(self, "weights", weights)
        self.quantile = check.number(self, "quantile", quantile, 0.0, 1.0)

    def forward(self, rewards: Tensor, reference: Tensor) -> Tensor:
        """Return the utility of each response (N,)."""
        check.floating(self, rewards, "rewards")
        check.values(self, "reference", reference, [None] * getattr(reference, "ndim", 0), rewards)
        if rewards.dim() not in (1, 2) or not check.broadcastable(reference.shape, rewards.shape):
            raise ValueError(
                f"{type(self).__name__}: rewards must have shape (N,) or (N, K) and reference one that broadcasts to "
                f"it, not {tuple(rewards.shape)} and {tuple(reference.shape)}"
            )
        utility = MODES[self.mode](accurate(rewards) - accurate(reference))
        if rewards.dim() == 1:
            utility = utility.unsqueeze(1)
        return (utility * self._of(utility.shape[1], utility)).sum(1).to(rewards.dtype)

    def _of(self, kinds: int, like: Tensor) -> Tensor | float:
        if self.weights is None:
            return 1.0
        if len(self.weights) != kinds:
            raise ValueError(
                f"{type(self).__name__}: rewards are of {number_of(kinds, 'kind')}, but weights has {len(self.weights)}"
            )
        return like.new_tensor(self.weights)

    def reference(self, samples: Tensor) -> Tensor:
        """Return the quantile of the rewards of a base policy's samples (N, S, K) for each prompt: (N, K)."""
        check.values(self, "samples", samples, (None, None, None), samples)
        return torch.quantile(accurate(samples), self.quantile, dim=1).to(samples.dtype)
