"""Test-time batch renormalization: the running normalization by value, the batch's by gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.ops import channel
from normkit.running import Running, moving, once, snapshot, track
from normkit.statistics import accurate, moments


@method(
    "test-batch-renorm",
    paper="DELTA: Degradation-Free Fully Test-Time Adaptation (Zhao et al., 2023), arXiv 2301.13018; Towards Robust "
    "and Efficient Cloud-Edge Elastic Model Adaptation via Selective Entropy Distillation (Chen et al., 2024), "
    "arXiv 2402.17316",
    shape="N C H W",
    over="N H W",
    exempt={
        "processes": "test-time adaptation runs in one process",
        "vmap": "the statistics of one batch would move in each",
    },
)
class TestBatchRenorm(Method, Running):
    """Normalize by the running statistics, but let gradients flow as through the batch's own.

    For adapting the gain and bias of batch norms on a stream at test time, where a batch is too small to be normalized
    by. Per channel, over batch and space, with m and v the batch's mean and unbiased variance and r, d constants,

        r = sqrt(v + eps) / sqrt(running_var + eps),   d = (m - running_mean) / sqrt(running_var + eps)
        y = weight * ((x - m) / sqrt(v + eps) * r + d) + bias

    In training the running values then move. Where they are missing, ``num_batches_tracked`` is 0, the first batch
    gives them before it is normalized, also in evaluation; set it to 1 to keep those of the trained model.

    Args:
        num_features: C.
        eps: added to variances.
        momentum: share of the new batch in the running values.

    State: ``weight``, ``bias``, ``running_mean``, ``running_var`` (C,), ``num_batches_tracked``.

    DELTA (Zhao et al., 2023), arXiv 2301.13018; as CEMA (Chen et al., 2024), arXiv 2402.17316, has it.
    """

    __test__ = False  # its name is none of pytest's
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, *, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps, self.momentum = check.eps(self, eps), check.number(self, "momentum", momentum, 0.0, 1.0)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep_moments(num_features)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, H, W); in training, and on the first batch, move the running values."""
        check.channels_first(self, x, self.num_features, least=4, most=4)
        with once(self, x):
            h = self._renormalize(accurate(x))
        return channel.affine(h, self.weight, self.bias).to(x.dtype)

    def _renormalize(self, x: Tensor) -> Tensor:
        stats = moments(x, (0, 2, 3))
        mean, var = stats.mean, stats.unbiased()
        fresh = (self.num_batches_tracked == 0) & (stats.count > 0)
        old_mean = torch.where(fresh, mean.detach(), snapshot(self.running_mean).to(x.dtype))
        old_var = torch.where(fresh, var.detach(), snapshot(self.running_var).to(x.dtype))
        std, old_std = (var + self.eps).sqrt(), (old_var + self.eps).sqrt()
        r, d = std.detach() / old_std, (mean.detach() - old_mean) / old_std
        self._move(stats.count, fresh, running_mean=mean, running_var=var)
        return (x - _along(mean)) * _along(r / std) + _along(d)

    def _move(self, count: Tensor, fresh: Tensor, **values: Tensor) -> None:
        rate = self.momentum if self.training else 0.0
        moved = (count > 0) if self.training else fresh
        for name, value in values.items():
            track(getattr(self, name), value, torch.where(fresh, 1.0, rate * moved.to(value.dtype)))
        with moving():
            self.num_batches_tracked.add_(moved.to(self.num_batches_tracked.dtype))


def _along(value: Tensor) -> Tensor:
    return value[:, None, None]
