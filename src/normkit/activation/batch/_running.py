"""Running estimates of mean and variance, under the names that torch's BatchNorm keeps them by."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import statistics
from normkit.norm import Norm


class RunningMoments(Norm):
    """A norm that may keep ``running_mean`` and ``running_var`` (C,) and ``num_batches_tracked``.

    ``momentum`` is the share of the new batch; None weighs all batches alike.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    momentum: float | None

    def _keep_moments(self, num_features: int, track: bool) -> None:
        self.register_buffer("running_mean", torch.zeros(num_features) if track else None)
        self.register_buffer("running_var", torch.ones(num_features) if track else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if track else None)

    def _track(self, found: statistics.Moments) -> None:
        """Move the running averages; an empty batch counts, but moves nothing."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        if not statistics.recomputing():
            self.num_batches_tracked.add_(1)
        moves = (found.count > 0).to(self.running_mean.dtype)
        rate = moves / self.num_batches_tracked if self.momentum is None else moves * self.momentum
        statistics.track(self.running_mean, found.mean, rate)
        statistics.track(self.running_var, found.unbiased(), rate)
