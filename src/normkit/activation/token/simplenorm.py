"""SimpleNorm: vectors divided by their standard deviation, and not centered."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts
from normkit.statistics import accurate, moments


def _timm(features: int) -> nn.Module:
    from timm.layers import SimpleNorm as Peer

    return Peer(features)


@method(
    "simplenorm",
    paper="SimpleNorm of timm (Wightman, 2024), without a paper",
    evidence="library",
    shape="... C",
    over="C",
    replaces=("layernorm", "rmsnorm"),
    aliases={"SimpleNorm2d": {"channels_last": False}},
    called={"timm.layers.SimpleNorm": "channels=dim eps affine"},
    invariant=("scale",),
    peer=_timm,
)
class SimpleNorm(Norm):
    """Divide each vector by its standard deviation, without centering it, and multiply by a learned gain.

    For weights that were trained with it, in timm or PocketTTS. No paper compares it: a new model takes ``rmsnorm`` or
    ``layernorm``, under which vectors of nearly equal entries are not blown up.

    Between LayerNorm, which subtracts the mean as well, and RMSNorm, whose statistic contains it. With v the unbiased
    variance of the vector,

        y = weight * x / sqrt(v + eps)

    A large mean stays large: a constant vector is multiplied by 1 / sqrt(eps).

    Args:
        dim: size of the axis that is normalized, at least 2.
        eps: added to the variance under the root.
        affine: learn ``weight``.
        channels_last: normalize the last axis, else axis 1 of ``(N, C, *space)``, as timm's SimpleNorm2d.

    SimpleNorm of timm (Wightman, 2024); PocketTTS closes its time embedding with it.
    """

    weight: nn.Parameter | None

    def __init__(self, dim: int, *, eps: float = 1e-6, affine: bool = True, channels_last: bool = True):
        super().__init__()
        self.dim = check.size(self, "dim", dim, 2)
        self.eps = check.eps(self, eps)
        self.affine, self.channels_last = bool(affine), bool(channels_last)
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        if self.channels_last:
            check.features_last(self, x, self.dim)
            return self._normalize(x)
        check.channels_first(self, x, self.dim)
        return self._normalize(x.movedim(1, -1)).movedim(-1, 1)

    @by_parts
    def _normalize(self, x: Tensor) -> Tensor:
        y = x * (moments(x, (-1,)).unbiased() + self.eps).rsqrt().unsqueeze(-1)
        return (y if self.weight is None else y * self.weight).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize cut vectors, whose sum and sum of squares are one message."""
        last, x = part.whole.ndim - 1, accurate(part.local)
        weight = part.parameter(self, "weight", self.weight, last)
        _, var = part.moments(x, (last,))
        y = x * (var * (self.dim / (self.dim - 1)) + self.eps).rsqrt().to(x.dtype)
        return (y if weight is None else y * weight).to(part.local.dtype)
