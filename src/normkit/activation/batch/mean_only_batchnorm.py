"""Batch normalization of the mean alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.batch._channelwise import over
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.channel import along
from normkit.running import Running


@method(
    "mean-only-batchnorm",
    paper="Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural Networks "
    "(Salimans, Kingma, 2016), arXiv 1602.07868",
    evidence="equations",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    invariant=("shift",),
    provenance="equations in float64 in tests/activation/test_batch_neighbours.py",
)
class MeanOnlyBatchNorm(Running, Norm):
    """Subtract the batch's mean from each channel, and add a learned shift.

    For networks with ``weight-norm``, which fixes the scale: the noise of a batch's mean is gentle, that of its
    variance is not. Without it nothing here holds the scale, and ``batchnorm`` is the one to take.

    Per channel, over all values of batch and space, and with the running mean in evaluation,

        y = x - mean + bias

    Args:
        num_features: C, the number of channels.
        momentum: share of the NEW batch in the running mean; None averages all batches alike.
        bias: learn ``bias``.
        sync: join the mean over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural Networks (Salimans, Kingma,
    2016), arXiv 1602.07868.
    """

    running_mean: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        num_features: int,
        *,
        momentum: float | None = 0.1,
        bias: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.momentum = None if momentum is None else check.number(self, "momentum", momentum, 0, 1)
        self.sync, self.process_group = bool(sync), process_group
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if bias else None)
        self.keep(running_mean=torch.zeros(num_features), batches=True)

    def forward(self, x: Tensor) -> Tensor:
        """Center ``x``; in training move the running mean."""
        check.channels_first(self, x, self.num_features)
        exact = statistics.accurate(x)
        mean = self._batch_mean(x) if self.training else statistics.accurate(self.running_mean)
        y = exact - along(mean, x)
        return (y if self.bias is None else y + along(self.bias, x)).to(x.dtype)

    def _batch_mean(self, x: Tensor) -> Tensor:
        joined = {"sync": self.sync, "group": self.process_group}
        mean, count = statistics.mean_and_count(x, over(x), **joined)
        self.move(count, running_mean=mean)
        return mean
