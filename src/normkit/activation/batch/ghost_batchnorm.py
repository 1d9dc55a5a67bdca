"""Ghost batch normalization: batch norm of small parts of a large batch."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel
from normkit.ops.channel import along
from normkit.running import track


class _Cut(NamedTuple):
    """How the joined batch of ``total`` samples is cut, and where this process' samples start in it."""

    ghosts: int
    length: int
    start: int
    total: int


@method(
    "ghost-batchnorm",
    paper="Train longer, generalize better: closing the generalization gap in large batch training of neural "
    "networks (Hoffer, Hubara, Soudry, 2017), arXiv 1705.08741",
    evidence="equations",
    shape="N C *",
    over="N *",
    aliases=("ghost-bn",),
    example={"ghost_size": 2},
    replaces=("batchnorm",),
    provenance="the authors' training script, read and restated as a layer; the paper's printed algorithm differs",
    messages="where ghosts are cut follows from how many samples the processes before have",
)
class GhostBatchNorm(Channelwise):
    """Cut the batch into small ghost batches and normalize each channel of each by its own mean and variance.

    For large batches, which then keep the noise of small ones. With batches that are small already, take ``groupnorm``.

    Of N samples, in order, k = max(1, N // ghost_size) ghosts are wanted: each takes ceil(N / k) samples, the last what
    is left (so 10 samples with ghosts of 4 are cut 5, 5). Per channel, over the samples and the space of a ghost, with
    the biased variance,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    The running values move once a ghost, in order, so that the last weighs most; the running variance is the unbiased
    one. Evaluation is batch normalization with the running values, without ghosts.

    Args:
        num_features: C, the number of channels.
        ghost_size: samples wanted in a ghost.
        eps: added to the variance under the root.
        momentum: share of each NEW ghost in the running values.
        affine: learn ``weight`` and ``bias``.
        sync: cut the joined batch of all processes, in the order of their ranks, not each process' own.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``. In training a ghost of one value a channel is refused.

    Train longer, generalize better: closing the generalization gap in large batch training of neural networks (Hoffer,
    Hubara, Soudry, 2017), arXiv 1705.08741.

    Differs from the paper, as the authors' training script does, in: variances are averaged, not standard deviations,
    and the last ghost weighs most, not the first. A batch with NaN or infinity enters the running values, as in
    torch's BatchNorm; an empty one leaves them as they are.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        ghost_size: int = 32,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.ghost_size = check.size(self, "ghost_size", ghost_size)
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running values."""
        check.channels_first(self, x, self.num_features)
        if not self.training:
            return channel.normalize_with(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        wide = statistics.accurate(x)
        cut = self._cut(wide)
        moments = self._moments_of_ghosts(wide, cut)
        self._track_each(moments)
        mean, var = (along(self._spread(value, wide, cut), x) for value in moments[:2])
        h = (wide - mean) * (var + self.eps).rsqrt()
        return channel.affine(h, self.weight, self.bias).to(x.dtype)

    def _cut(self, x: Tensor) -> _Cut:
        start, total = statistics.place(x, self.process_group) if self.sync else (0, x.shape[0])
        length = -(-total // max(1, total // self.ghost_size))
        length = max(1, length)
        ghosts = -(-total // length)
        if total and (total - (ghosts - 1) * length) * math.prod(x.shape[2:]) == 1:
            raise ValueError(
                f"GhostBatchNorm: {total} samples are cut into ghosts of {length}, of which the last has one value a "
                "channel, which has no variance"
            )
        return _Cut(ghosts, length, start, total)

    def _moments_of_ghosts(self, x: Tensor, cut: _Cut) -> statistics.Moments:
        """Moments of each ghost, (ghosts, C), of which this process has the whole, a part or nothing."""
        count = _sum(x.new_ones(x.shape[0], 1), cut) * x.shape[2:].numel()
        some = count.clamp(min=1)
        mean = _sum(x, cut) / some
        centered = x - along(self._spread(mean, x, cut), x)
        square, rest = (_sum(values, cut) / some for values in (centered.square(), centered.detach()))
        return statistics.joined_moments(mean, rest, square, count, self.process_group, sync=self.sync)

    def _spread(self, value: Tensor, x: Tensor, cut: _Cut) -> Tensor:
        """Give each sample of this process the number of its ghost, (N, C)."""
        samples = value.unsqueeze(1).expand(-1, cut.length, -1).flatten(0, 1)
        return samples.narrow(0, cut.start, x.shape[0])

    def _track_each(self, moments: statistics.Moments) -> None:
        """Move the running values as one step a ghost does: the i-th of k keeps (1 - momentum)^(k - i) of its share."""
        ghosts = moments.mean.shape[0]
        kept = (1 - self.momentum) ** torch.arange(ghosts, -1, -1, device=moments.mean.device, dtype=moments.mean.dtype)
        rate, share = 1 - kept[0], self.momentum * kept[1:].unsqueeze(1)
        for running, value in ((self.running_mean, moments.mean), (self.running_var, moments.unbiased())):
            average = (share * value.detach()).sum(0) / torch.where(rate > 0, rate, 1)
            track(running, average, rate)


def _sum(x: Tensor, cut: _Cut) -> Tensor:
    """Add up what this process has of each ghost: (N, C, *space) to (ghosts, C)."""
    samples = statistics.sum_over(x, range(2, x.dim()))
    after = cut.ghosts * cut.length - cut.start - x.shape[0]
    return F.pad(samples, (0, 0, cut.start, after)).unflatten(0, (cut.ghosts, cut.length)).sum(1)
