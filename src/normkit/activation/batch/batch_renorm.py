"""Batch renormalization: batch statistics corrected towards the running ones."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel
from normkit.ops.channel import along
from normkit.running import once, snapshot

NOT_THE_DERIVATIVE = "the corrections r and d are constants for the gradient, by the paper's definition"


@method(
    "batch-renorm",
    paper="Batch Renormalization: Towards Reducing Minibatch Dependence (Ioffe, 2017), arXiv 1702.03275",
    evidence="abstract",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    aliases=("brn",),
    provenance="the paper's equations and schedule as recalled; no code of the author",
    exempt={"gradcheck train": NOT_THE_DERIVATIVE, "higher-derivatives": NOT_THE_DERIVATIVE},
)
class BatchRenorm(Channelwise):
    """Normalize each channel by the batch, then correct it towards what the running statistics would have given.

    For small batches, or batches that are not drawn at random: training then computes the function that evaluation
    uses. Per channel, over batch and space, with s = sqrt(biased variance + eps) and the running values from before
    the batch,

        r = clip(s / running_std, 1 / r_max, r_max),   d = clip((mean - running_mean) / running_std, -d_max, d_max)
        y = weight * ((x - mean) / s * r + d) + bias

    r and d carry no gradient. Evaluation is weight * (x - running_mean) / running_std + bias: eps is in running_std
    already.

    Args:
        num_features: C, the number of channels.
        eps: added to the batch's variance under the root.
        momentum: share of the NEW batch in the running values; small, since they enter training.
        affine: learn ``weight`` and ``bias``.
        r_max: largest correction of the scale, at least 1; an attribute that a schedule may change.
        d_max: largest correction of the mean, at least 0; likewise.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``. r_max of 1 with d_max of 0 is batch normalization in training; the paper
    starts so, holds it for 5000 steps and reaches 3 at step 40000 and 5 at step 25000.

    Batch Renormalization: Towards Reducing Minibatch Dependence in Batch-Normalized Models (Ioffe, 2017), arXiv
    1702.03275. Built from the paper's equations as recalled; no code of the author was compared.

    A batch with NaN or infinity enters the running values, as in torch's BatchNorm; an empty one leaves them as they
    are.
    """

    running_mean: Tensor
    running_std: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-3,
        momentum: float = 0.01,
        r_max: float = 3.0,
        d_max: float = 5.0,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.r_max = check.number(self, "r_max", r_max, 1)
        self.d_max = check.number(self, "d_max", d_max, 0)
        self.keep(running_mean=torch.zeros(num_features), running_std=torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running values."""
        check.channels_first(self, x, self.num_features)
        wide = statistics.accurate(x)
        if self.training:
            with once(self, wide):
                h = self._renormalize(wide)
        else:
            mean, std = statistics.accurate(self.running_mean), statistics.accurate(self.running_std)
            h = (wide - along(mean, x)) / along(std, x)
        return channel.affine(h, self.weight, self.bias).to(x.dtype)

    def _renormalize(self, x: Tensor) -> Tensor:
        moments = self._moments(x)
        std = (moments.var + self.eps).sqrt()
        old_mean, old_std = snapshot(self.running_mean), snapshot(self.running_std)
        r = (std.detach() / old_std).clamp(1 / self.r_max, self.r_max)
        d = ((moments.mean.detach() - old_mean) / old_std).clamp(-self.d_max, self.d_max)
        self.move(moments.count, running_mean=moments.mean, running_std=std)
        return (x - along(moments.mean, x)) * along(r / std, x) + along(d, x)
