"""What the methods share that normalize channel by channel over batch and space."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.norm import Norm
from normkit.running import Running


class Channelwise(Running, Norm):
    """A norm of ``(N, C, *space)`` with a gain and a shift per channel, and running estimates per channel.

    ``momentum`` is the share of the new batch in the running estimates.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, num_features: int, eps: float, momentum: float, affine: bool, sync: bool, process_group):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.momentum = check.number(self, "momentum", momentum, 0, 1)
        self.affine = bool(affine)
        self.sync, self.process_group = bool(sync), process_group
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)

    def _moments(self, x: Tensor) -> statistics.Moments:
        return statistics.moments(x, over(x), sync=self.sync, group=self.process_group)

    def _mean(self, x: Tensor) -> Tensor:
        return statistics.mean_over(x, over(x), sync=self.sync, group=self.process_group)

    def _mean_and_count(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return statistics.mean_and_count(x, over(x), sync=self.sync, group=self.process_group)

    def _alone(self) -> bool:
        """Whether the statistics are those of this process only."""
        return statistics.are_own(self.sync, self.process_group)

    def _require_spread(self, x: Tensor) -> None:
        """Require more than one value a channel, since a single one has no variance."""
        if self._alone() and x.numel() == self.num_features:
            raise ValueError(
                f"{type(self).__name__}: x of shape {tuple(x.shape)} has one value a channel, which has no variance"
            )


def over(x: Tensor) -> list[int]:
    """All axes but the channels'."""
    return [axis for axis in range(x.dim()) if axis != 1]
