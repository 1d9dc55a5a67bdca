"""Batch norm of values and of their interval bounds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.running import Running
from normkit.statistics import accurate, moments


@method(
    "ibp-batchnorm",
    paper="Fast Certified Robust Training with Short Warmup (Shi et al., 2021), arXiv 2103.17268",
    shape="N C *",
    over="N *",
    inputs={"lower": "N C *", "upper": "N C *"},
)
class IBPBatchNorm(Running, Method):
    """Normalize each channel, and its bounds, by one mean and one deviation.

    For certified training: batch norm in every layer balances ReLUs that are on and off under interval bounds. With
    s = weight / sqrt(var + eps) and t = bias - mean s,

        y = s x + t,    bounds = s (lower + upper) / 2 + t  -+  |s| (upper - lower) / 2

    The mean and biased variance are of x, or of the midpoints of the bounds; gradients flow through them. They are not
    bounded themselves: only in evaluation, with the running ones, the bounds certify anything.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: share of the new batch in the running moments, whose variance is unbiased.
        statistics: ``"clean"``: of x; ``"interval"``: of the midpoints.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    ``norm(x, lower, upper)``, each (N, C) or (N, C, *space), returns y and both bounds. State: ``weight``, ``bias``,
    ``running_mean``, ``running_var``, all (C,).

    Fast Certified Robust Training with Short Warmup (Shi et al., 2021), arXiv 2103.17268.

    Differs from the authors' code in: ``"interval"`` works in evaluation, and returns y under the same statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        statistics: str = "clean",
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps, self.momentum = check.eps(self, eps), check.number(self, "momentum", momentum, 0.0, 1.0)
        self.statistics = check.choice(self, "statistics", statistics, ("clean", "interval"))
        self.sync, self.process_group = bool(sync), process_group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalize ``x`` and its bounds; in training move the running moments."""
        check.channels_first(self, x, self.num_features)
        for name, bound in (("lower", lower), ("upper", upper)):
            check.values(self, name, bound, x.shape, x)
        wide, low, high = accurate(x), _laid_as(x, accurate(lower)), _laid_as(x, accurate(upper))
        scale, shift = self._affine(wide, (low + high) / 2)
        centre, radius = scale * (low + high) / 2 + shift, scale.abs() * (high - low) / 2
        y = scale * wide + shift
        return y.to(x.dtype), (centre - radius).to(lower.dtype), (centre + radius).to(upper.dtype)

    def _affine(self, x: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = self.running_mean.to(x.dtype), self.running_var.to(x.dtype)
        if self.training:
            of = x if self.statistics == "clean" else middle
            stats = moments(of, [0, *range(2, x.dim())], sync=self.sync, group=self.process_group)
            self.follow(stats)
            mean, var = stats.mean, stats.var
        scale = self.weight.to(x.dtype) * torch.rsqrt(var + self.eps)
        shift = self.bias.to(x.dtype) - mean * scale
        view = (-1, *[1] * (x.dim() - 2))
        return scale.view(view), shift.view(view)


def _laid_as(x: Tensor, bound: Tensor) -> Tensor:
    last = x.dim() == 4 and x.stride(1) == 1 < x.shape[1]  # channels last, asked in a way that vmap understands
    return bound.contiguous(memory_format=torch.channels_last) if last else bound
