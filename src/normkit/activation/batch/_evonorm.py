"""What the batch-dependent EvoNorms share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.norm import Norm
from normkit.running import Running


class EvoNormB(Running, Norm):
    """Divide by the larger of the batch's deviation and a rival made of the sample; the classes differ in the rival."""

    running_var: Tensor | None
    weight: nn.Parameter | None
    bias: nn.Parameter | None
    unbiased: bool = True  # which variance is tracked
    least_axes = 2

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        apply_act: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.momentum = check.number(self, "momentum", momentum, 0, 1)
        self.apply_act = bool(apply_act)
        self.sync, self.process_group = sync, process_group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep(running_var=torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize and activate ``x``; in training move the running variance."""
        check.channels_first(self, x, self.num_features, self.least_axes)
        if not self.apply_act or self.running_var is None:
            return ops.affine(statistics.accurate(x), self.weight, self.bias).to(x.dtype)
        exact = statistics.accurate(x)
        var = self._batch_var(exact) if self.training else statistics.accurate(self.running_var)
        deviation = (var + self.eps).sqrt().reshape(-1, *[1] * (x.dim() - 2))
        return ops.affine(exact / torch.maximum(deviation, self._rival(exact)), self.weight, self.bias).to(x.dtype)

    def _rival(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _batch_var(self, x: Tensor) -> Tensor:
        axes = [a for a in range(x.dim()) if a != 1]
        moments = statistics.moments(x, axes, sync=self.sync, group=self.process_group)
        tracked = moments.unbiased() if self.unbiased else moments.var
        self.move(moments.count, running_var=tracked)
        return moments.var

    def _root_mean_square(self, x: Tensor) -> Tensor:
        return (ops.mean_over_space(x.square()) + self.eps).sqrt()
