"""Batch-channel normalization: a batch norm, then a group norm with one gain a group."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel
from normkit.running import once, snapshot


@method(
    "batch-channel-norm",
    paper="Micro-Batch Training with Batch-Channel Normalization and Weight Standardization (Qiao et al., 2019), "
    "arXiv 1903.10520",
    shape="N C *",
    over="N *",
    example={"num_groups": 4},
    replaces=("batchnorm", "groupnorm"),
)
class BatchChannelNorm(Channelwise):
    """Normalize each channel over the batch, then groups of channels within each sample.

    For convolutional networks trained with few images a device, after a convolution with weight standardization. With
    batches of 16 and more ``batchnorm`` is the usual choice.

    First

        z = batch_weight * (x - m) / sqrt(s + batch_eps) + batch_bias

    with the batch's mean and variance in training, the running ones in evaluation. With ``estimate`` training moves
    the running values first, s towards the mean square about the OLD running mean, and divides by the moved ones,
    through which no gradient flows: this works with one image. Then, over the C / ``num_groups`` neighbouring
    channels of a group and space,

        y = weight[group] * (z - mean) / sqrt(var + eps) + bias[group]

    Args:
        num_features: C, the number of channels.
        num_groups: number of groups, a divisor of C.
        eps: added to the group's variance under the root.
        batch_eps: added to s under the root.
        momentum: share of the NEW batch in the running values.
        estimate: normalize with running values in training too.
        sync: join the batch's statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``. ``weight`` and ``bias`` hold one number a group, ``batch_weight`` and
    ``batch_bias`` one a channel.

    Micro-Batch Training with Batch-Channel Normalization and Weight Standardization (Qiao et al., 2019), arXiv
    1903.10520; Rethinking Normalization and Elimination Singularity in Neural Networks (Qiao et al., 2019), arXiv
    1911.09738.

    Differs from the authors' code in: the rate of ``estimate`` is ``momentum``, where theirs is a buffer that starts
    at 0 and that the training script sets. A batch with NaN or infinity enters the running values, as in torch's
    BatchNorm; an empty one leaves them as they are.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-5,
        batch_eps: float = 1e-5,
        momentum: float = 0.1,
        estimate: bool = False,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, False, sync, process_group)
        self.num_groups = check.size(self, "num_groups", num_groups)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
        self.batch_eps = check.eps(self, batch_eps, "batch_eps")
        self.estimate = bool(estimate)
        self.batch_weight = nn.Parameter(torch.ones(num_features))
        self.batch_bias = nn.Parameter(torch.zeros(num_features))
        self.weight = nn.Parameter(torch.ones(num_groups))
        self.bias = nn.Parameter(torch.zeros(num_groups))
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running values."""
        check.channels_first(self, x, self.num_features)
        z = self._normalize_batch(statistics.accurate(x))
        size = self.num_features // self.num_groups
        weight, bias = (p.repeat_interleave(size, output_size=self.num_features) for p in (self.weight, self.bias))
        return channel.group_norm(z, self.num_groups, weight, bias, eps=self.eps).to(x.dtype)

    def _normalize_batch(self, x: Tensor) -> Tensor:
        if self.training and not self.estimate:
            return self._normalize_by_batch(x)
        if self.training:
            with once(self, x):
                mean, var = self._estimate(x)
        else:
            mean, var = self.running_mean, self.running_var
        return channel.normalize_with(x, mean, var, self.batch_weight, self.batch_bias, eps=self.batch_eps)

    def _normalize_by_batch(self, x: Tensor) -> Tensor:
        self._require_spread(x)
        z, moments = channel.batch_norm(
            x, self.batch_weight, self.batch_bias, eps=self.batch_eps, sync=self.sync, group=self.process_group
        )
        self.follow(moments)
        return z

    @torch.no_grad()
    def _estimate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Move the running values, and return what they move to."""
        moments = self._moments(x)
        old_mean, old_var = snapshot(self.running_mean), snapshot(self.running_var)
        about_old = moments.var + (moments.mean - old_mean).square()
        self.move(moments.count, running_mean=moments.mean, running_var=about_old)
        rate = self.momentum * (moments.count > 0).to(moments.mean.dtype)
        return old_mean + rate * (moments.mean - old_mean), old_var + rate * (about_old - old_var)
