"""Batch-instance normalization: a learned gate a channel between the two."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops.channel import along


@method(
    "batch-instance-norm",
    paper="Batch-Instance Normalization for Adaptively Style-Invariant Neural Networks (Nam, Kim, 2018), "
    "arXiv 1805.07925",
    evidence="equations",
    shape="N C +",
    over="N *",
    replaces=("batchnorm", "instancenorm"),
    aliases=("bin",),
    invariant=("shift", "scale"),
    provenance="equations in float64 in tests/activation/test_batch_neighbours.py",
)
class BatchInstanceNorm(Channelwise):
    """Normalize each channel by the batch's and by the sample's moments, and mix both by a learned gate.

    For recognition in which some channels carry style that does not matter, and some that does. Where no style misleads
    take ``batchnorm``, which folds away at inference.

    With b and i the batch- and the instance-normalized x, biased variances, and the running moments in b in evaluation,

        y = weight * (gate * b + (1 - gate) * i) + bias

    The gate starts at 1, a batch norm. It shall stay in [0, 1]: the authors clip it after each step, which is
    :meth:`clip_gate`.

    Args:
        num_features: C, the number of channels.
        eps: added to both variances under the root.
        momentum: share of the NEW batch in the running moments.
        affine: learn ``weight`` and ``bias``.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, *space)`` with at least one axis of space. The state is that of torch's BatchNorm, and ``gate``.

    Batch-Instance Normalization for Adaptively Style-Invariant Neural Networks (Nam, Kim, 2018), arXiv 1805.07925.
    """

    running_mean: Tensor
    running_var: Tensor

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
        self.gate = nn.Parameter(torch.ones(num_features))
        self.keep_moments(num_features)

    @torch.no_grad()
    def clip_gate(self) -> None:
        """Bring the gate back into [0, 1], after a step."""
        self.gate.clamp_(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        check.channels_first(self, x, self.num_features, 3)
        exact = statistics.accurate(x)
        if self.training:
            self._require_spread(x)
            batch, moments = ops.batch_norm(exact, eps=self.eps, sync=self.sync, group=self.process_group)
            self.follow(moments)
        else:
            batch = ops.normalize_with(exact, self.running_mean, self.running_var, eps=self.eps)
        gate = along(statistics.accurate(self.gate).to(exact.dtype), x)
        y = torch.lerp(ops.instance_norm(exact, eps=self.eps), batch, gate)
        return ops.affine(y, self.weight, self.bias).to(x.dtype)
