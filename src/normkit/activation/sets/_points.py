"""What the three norms of PointNorm share: sampled points (N, S, C) and their K neighbours each (N, S, K, C)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.norm import Norm
from normkit.statistics import accurate

PAPER = "PointNorm: Dual Normalization is All You Need for Point Cloud Analysis (Zheng et al., 2022), arXiv 2207.06324"
ROOT_EPS = 1e-5  # fixed in the authors' code; the eps argument does not reach it


class PointwiseNorm(Norm):
    """The arguments of a norm of grouped points, their checks, and ``weight`` and ``bias`` (C,)."""

    def __init__(self, num_features: int, *, mean: str = "local", std: str = "global", eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.mean = check.choice(self, "mean", mean, ("local", "global"))
        self.std = check.choice(self, "std", std, ("local", "global"))
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    def _check(self, grouped: Tensor, anchors: Tensor) -> None:
        check.values(self, "grouped", grouped, (None, None, None, self.num_features), grouped)
        check.values(self, "anchors", anchors, (*grouped.shape[:2], self.num_features), grouped)

    def _center_grouped(self, grouped: Tensor, anchors: Tensor) -> Tensor:
        """Normalize the neighbours; see PointNorm."""
        grouped, anchors = accurate(grouped), accurate(anchors)
        d = grouped - (anchors.unsqueeze(2) if self.mean == "local" else _number_a_sample(anchors))
        spread = self._deviation(d, (2,) if self.std == "local" else (1, 2, 3), "grouped")
        return d / (spread + self.eps)

    def _center_anchors(self, grouped: Tensor, anchors: Tensor) -> Tensor:
        """Normalize the sampled points; see ReversePointNorm."""
        grouped, anchors = accurate(grouped), accurate(anchors)
        d = anchors - (grouped.mean(2) if self.mean == "local" else _number_a_sample(grouped).flatten(1).unsqueeze(-1))
        if self.std == "local":
            return d / ((d.abs() + ROOT_EPS).sqrt() + self.eps)
        return d / (self._deviation(d, (1, 2), "anchors") + self.eps)

    def _deviation(self, d: Tensor, axes: tuple[int, ...], name: str) -> Tensor:
        """Unbiased deviation; its gradient at 0 is 0."""
        if d.numel() and all(d.shape[a] == 1 for a in axes):
            raise ValueError(
                f"{type(self).__name__}: {name} of shape {tuple(d.shape)} has one value to take a deviation over; "
                f"std={self.std!r} needs at least two"
            )
        return d.std(axes, keepdim=True)


def _number_a_sample(x: Tensor) -> Tensor:
    """Mean over everything but the samples, as (N, 1, 1, 1)."""
    return x.mean(tuple(range(1, x.dim()))).view(-1, 1, 1, 1)
