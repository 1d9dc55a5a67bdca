"""Delta-L: losses of responses of unequal length, joined with the least variance."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate

MODES = ("delta-l", "dr-grpo", "grpo", "dapo")


@method(
    "delta-l",
    paper="Delta L Normalization: Rethink Loss Aggregation in RLVR (He et al., 2025), arXiv 2509.07558",
    shape="N T",
    over="T",
    inputs={"mask": "N T : mask"},
    exempt={"processes": "the lengths of the whole batch are wanted; join them before the call"},
)
class DeltaL(Loss):
    """Average the losses of tokens over responses, each weighted by a power of its length.

    For reinforcement learning of language models: a long response's gradient varies more, so that it should count for
    less, yet not less in the mean.

    With L the responses' lengths, S the sums of their losses and M a constant length, the result is sum_i x_i S_i,
    where

        delta-l   x_i = L_i^-alpha / (M sum_j L_j^-alpha)        alpha = 1: the least variance if it grows with L
        dr-grpo   x_i = 1 / (N M)                                the same with alpha = 0, but N counts empty ones
        grpo      x_i = 1 / (N L_i)                              biased: long responses count for less
        dapo      x_i = 1 / (sum_j L_j + 1e-8)                   biased by the batch

    An empty response counts for nothing, and a loss outside of the mask is never looked at, be it infinite or NaN.

    Args:
        mode: which of the four.
        alpha: the power.
        max_length: M; None is the padded length of the batch.

    ``loss(loss, mask)``: losses (N, T) and a mask (N, T) of 0 and 1, of any type; ``weights(mask)`` are the x_i (N,).

    Delta L Normalization (2025), arXiv 2509.07558.

    Differs from the authors' code in: the weights multiply the losses, not the advantages; under PPO's clipping that is
    the same, since they are positive.
    """

    def __init__(self, mode: str = "delta-l", alpha: float = 1.0, max_length: int | None = None):
        super().__init__()
        self.mode = check.choice(self, "mode", mode, MODES)
        self.alpha = check.number(self, "alpha", alpha)
        self.max_length = None if max_length is None else check.size(self, "max_length", max_length)

    def forward(self, loss: Tensor, mask: Tensor) -> Tensor:
        """Return the joined loss, a single number."""
        check.values(self, "loss", loss, (None, None), loss)
        check.flags(self, "mask", mask, loss.shape, loss)
        wide = accurate(loss)
        sums = torch.where(mask.bool(), wide, 0).sum(1)
        return (self._weights(mask.bool(), wide.dtype) * sums).sum().to(loss.dtype)

    def weights(self, mask: Tensor) -> Tensor:
        """Return the weight of each response, (N,)."""
        check.flags(self, "mask", mask, (None, None))
        dtype = accurate(mask).dtype if mask.is_floating_point() else torch.get_default_dtype()
        return self._weights(mask.bool(), dtype)

    def _weights(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        lengths = mask.sum(1).to(dtype)
        longest = mask.shape[1] if self.max_length is None else self.max_length
        nonempty, most = lengths > 0, max(longest, 1)
        if self.mode == "dapo":
            return nonempty.to(dtype) / (lengths.sum() + 1e-8)
        share = torch.where(nonempty, lengths, 1)
        if self.mode == "grpo":
            return nonempty.to(dtype) / (max(len(mask), 1) * share)
        alpha = self.alpha if self.mode == "delta-l" else 0.0
        # a power of the length over the mean length loses no digits; the mean cancels
        mean = lengths.sum() / nonempty.sum().clamp(min=1)
        power = torch.where(nonempty, (share / torch.where(mean > 0, mean, 1)) ** -alpha, 0)
        if self.mode == "dr-grpo":
            return power / (max(len(mask), 1) * most)
        total = power.sum()
        return power / (most * torch.where(total > 0, total, 1))
