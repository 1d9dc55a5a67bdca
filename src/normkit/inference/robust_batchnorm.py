"""Robust batch norm: the running moments, just moved by the batch, also normalize it in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops import channel
from normkit.running import Running, once, snapshot
from normkit.statistics import accurate, moments


@method(
    "robust-batchnorm",
    paper="Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    exempt={"processes": "the moments of a stream at test time are one process's"},
)
class RobustBatchNorm(Running, Norm):
    """Normalize by running moments that have just taken in the batch, with gradients through the batch's share.

    In the place of a batch norm, for streams whose batches are of one class or few samples.

    With a the momentum, m_b and v_b the batch's mean and biased variance, in training

        m = (1 - a) running_mean + a m_b,    v = (1 - a) running_var + a v_b
        y = weight * (x - m) / sqrt(v + eps) + bias

    and m, v are the new running moments. Evaluation uses the running moments as they are.

    Args:
        num_features: C.
        momentum: the share a of the batch.
        eps: added to the variance.

    State: ``weight``, ``bias``, ``running_mean``, ``running_var`` (C,).

    Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, *, momentum: float = 0.05, eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training move the running moments first."""
        check.channels_first(self, x, self.num_features)
        if not self.training:
            return ops.normalize_with(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        with once(self, x):
            wide = accurate(x)
            batch = moments(wide, [0, *range(2, x.dim())])
            share = self.momentum * (batch.count > 0).to(wide.dtype)
            mean = torch.lerp(snapshot(self.running_mean).to(wide.dtype), batch.mean, share)
            var = torch.lerp(snapshot(self.running_var).to(wide.dtype), batch.var, share)
            self.move(batch.count, running_mean=batch.mean, running_var=batch.var)
            h = (wide - channel.along(mean, wide)) / channel.along((var + self.eps).sqrt(), wide)
        return channel.affine(h, self.weight, self.bias).to(x.dtype)
