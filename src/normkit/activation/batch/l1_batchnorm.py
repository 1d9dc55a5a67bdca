"""L1 batch normalization: the mean absolute deviation in the place of the standard deviation."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise, over
from normkit.catalog import method
from normkit.ops import channel
from normkit.ops.channel import along


@method(
    "l1-batchnorm",
    paper="Towards Accurate and Efficient Sub-8-Bit Integer Training (Guo et al., 2024), arXiv 2411.10948",
    evidence="abstract",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    invariant=("shift", "scale"),
    provenance="the standard L1 equations: no public code, and only the abstract was read; eps, momentum are ours",
    messages="the sum of sizes about a mean, whose slope jumps at each value, needs the mean of all first",
)
class L1BatchNorm(Channelwise):
    """Center each channel on the batch's mean and divide it by the batch's mean absolute deviation.

    For quantized training: neither a square nor a root. Where squares do no harm, take ``batchnorm``.

    Per channel, over batch and space,

        y = weight * (x - mean) / (d + eps) + bias,   d = mean(|x - mean|)

    Evaluation uses ``running_mean`` and ``running_deviation``. On Gaussian values d is 0.7979 of the standard
    deviation, and no constant makes up for it: a weight of 0.7979 starts at batch normalization's scale.

    Args:
        num_features: C, the number of channels.
        eps: added to d itself.
        momentum: share of the NEW batch in the running values.
        affine: learn ``weight`` and ``bias``.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``. The derivative of |x - mean| at 0 is 0.

    Towards Accurate and Efficient Sub-8-Bit Integer Training (Guo et al., 2024), arXiv 2411.10948; the normalization
    is that of L1-Norm Batch Normalization for Efficient Training of Deep Neural Networks (Wu et al., 2018), arXiv
    1802.09769. No public code: the standard equations, with eps and momentum chosen here.

    A batch with NaN or infinity enters the running values, as in torch's BatchNorm; an empty one leaves them as they
    are.
    """

    running_mean: Tensor
    running_deviation: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.keep(running_mean=torch.zeros(num_features), running_deviation=torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running values."""
        check.channels_first(self, x, self.num_features)
        wide = statistics.accurate(x)
        if self.training:
            centered, mean, deviation, count = self._deviations(wide)
            self.move(count, running_mean=mean, running_deviation=deviation)
        else:
            mean, deviation = statistics.accurate(self.running_mean), statistics.accurate(self.running_deviation)
            centered = wide - along(mean, x)
        return channel.affine(centered / along(deviation + self.eps, x), self.weight, self.bias).to(x.dtype)

    def _deviations(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values less their mean, that mean, their mean size and their number."""
        if self._alone():
            mean, count = self._mean_and_count(x)
            centered = x - along(mean, x)
            return centered, mean, self._mean(centered.abs()), count
        joined = statistics.deviations(x, over(x), group=self.process_group)
        return joined.centered, joined.mean, joined.size, joined.count
