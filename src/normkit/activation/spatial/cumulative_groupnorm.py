"""The cumulative group norm of Gemma 3n's audio."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import by_parts
from normkit.statistics import accurate


class Past(NamedTuple):
    """What the steps so far leave for those to come, each (N,): their mean, their squares, and how many they were."""

    mean: Tensor
    squares: Tensor
    steps: Tensor


@method(
    "cumulative-groupnorm",
    paper="Group Normalization (Wu, He, 2018), arXiv 1803.08494, over the past as in Gemma 3n",
    evidence="library",
    shape="N T * C",
    over="T * C",
    replaces=("groupnorm", "layernorm"),
    aliases=("Gemma3nAudioCumulativeGroupNorm",),
    invariant=("shift", "scale"),
)
class CumulativeGroupNorm(Norm):
    """Center each step on the mean of all steps so far and divide it by their deviation; a learned gain a channel.

    For streams of audio: no step sees a later one. Where the whole sequence is there at once, take
    ``masked-groupnorm``.

    Over all axes behind time, n entries a step,

        m_t = mean over the steps 0 .. t,        q_t = sum (x_t - m_t)²,        v_t = (q_0 + ... + q_t) / (n (t + 1))
        y_t = weight * (x_t - m_t) / sqrt(v_t + eps)

    v_t is not the variance of the steps so far: each q_s is taken around the mean that was known at s.

    Args:
        num_features: size of the last axis.
        eps: added to v_t under the root.

    Input ``(N, T, ..., num_features)``. :meth:`stream` takes a sequence piece by piece.

    Group Normalization (Wu, He, 2018), arXiv 1803.08494, over the past as in transformers' Gemma 3n.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-3):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize a whole sequence."""
        return self.stream(x)[0]

    def stream(self, x: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """Normalize the next piece of a sequence behind ``past`` (None: it begins); return it and the new past."""
        check.features_last(self, x, self.num_features, least=3)
        z = accurate(x).flatten(2)
        origin, squares, steps = self._empty_past(z) if past is None else self._check_past(past, x, z)
        around = z - origin[:, None, None]  # so that sums stay small
        count = steps[:, None] + torch.arange(1, z.shape[1] + 1, device=z.device)
        mean = around.mean(-1).cumsum(1) / count
        centered = around - mean.unsqueeze(-1)
        total = squares[:, None] + centered.square().mean(-1).cumsum(1)
        n = centered * torch.rsqrt(total / count + self.eps).unsqueeze(-1)
        y = (n.view(x.shape) * self.weight).to(x.dtype)
        if z.shape[1] == 0:
            return y, Past(origin, squares, steps)
        return y, Past(origin + mean[:, -1], total[:, -1], count[:, -1])

    def _empty_past(self, z: Tensor) -> Past:
        """The past of no steps; the mean is of any number near the first ones."""
        none = z.new_zeros(z.shape[0])
        return Past(z[:, 0].mean(-1).detach() if z.shape[1] else none, none, none)

    def _check_past(self, past: Past, x: Tensor, z: Tensor) -> Past:
        if not isinstance(past, tuple | list) or len(past) != len(Past._fields):
            raise TypeError(f"CumulativeGroupNorm: past must be what stream returned, not {type(past).__name__}")
        for name, value in zip(Past._fields, past, strict=True):
            check.values(self, f"past.{name}", value, (x.shape[0],), x)
        return Past(*(value.to(z.dtype) for value in past))
