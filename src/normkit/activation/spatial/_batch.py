"""Moments of the batch in training, running ones in evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from normkit import check, statistics
from normkit.norm import Norm
from normkit.running import Running


class BatchMoments(Running, Norm):
    """A norm with running moments that takes part of its statistics, or all, across the batch."""

    running_mean: Tensor
    running_var: Tensor

    def _keep_batch_moments(
        self, num_features: int, momentum: float | None, sync: bool, process_group, track: bool = True
    ) -> None:
        self.momentum = None if momentum is None else check.number(self, "momentum", momentum, 0, 1)
        self.sync, self.process_group = sync, process_group
        self.keep_moments(num_features, track)

    def _moments(self, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Mean and biased variance to normalize with, flat; in training the batch's, which move the running ones."""
        if not self.training:
            return statistics.accurate(self.running_mean), statistics.accurate(self.running_var)
        if all(x.shape[axis] == 1 for axis in axes) and statistics.are_own(self.sync, self.process_group):
            raise ValueError(
                f"{type(self).__name__}: x has one value behind each statistic, over axes {tuple(axes)} of shape "
                f"{tuple(x.shape)}; training needs more"
            )
        moments = statistics.moments(x, axes, sync=self.sync, group=self.process_group)
        moments = statistics.Moments(moments.mean.flatten(), moments.var.flatten(), moments.count)
        self.follow(moments)
        return moments.mean, moments.var
