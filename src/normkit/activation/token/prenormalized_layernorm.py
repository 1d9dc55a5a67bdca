"""LayerNorm that cannot overflow: the mean absolute deviation is divided out first."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts


@method(
    "prenormalized-layernorm",
    paper="Conformer-Based Speech Recognition on Extreme Edge-Computing Devices (Xu et al., 2023), arXiv 2312.10359",
    evidence="abstract",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    invariant=("shift", "scale"),
    exempt={
        "units": "eps is added to a length, and then to a number without a unit",
        **dict.fromkeys(
            [f"extremes {kind} float16" for kind in ("zeros", "ones", "tiny", "offset")],
            "the gradient of a constant row, 1 / eps^1.5 times the arriving one, is beyond float16",
        ),
        "extremes huge float16": "the distance of 6e4 from a mean of the other sign is beyond float16",
    },
    provenance="where eps sits is this project's choice: the paper's appendix could not be read",
    messages="the sum of sizes about a mean, whose slope jumps at each value, needs the mean of all first",
)
class PrenormalizedLayerNorm(Norm):
    """LayerNorm computed in the input's own precision without overflow.

    For hardware that has float16 only. Dividing the centred input by its mean absolute deviation changes nothing in
    exact arithmetic, and afterwards squares stay small. Over the last axis, with z = x - mean(x) and a = mean(|z|),

        u = z / (a + eps),   y = u / sqrt(mean(u²) + eps) * weight + bias

    which is LayerNorm with eps replaced by eps (a + eps)².

    Args:
        dim: size of the last axis.
        eps: enters twice, as written; 0 is honoured.

    Conformer-Based Speech Recognition on Extreme Edge-Computing Devices (Xu et al., 2023), arXiv 2312.10359.

    Differs from the other methods in: half-precision inputs are NOT computed in float32; that is its point. Where eps
    sits is this project's choice: the paper's appendix could not be read.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` in its own precision; means are sums of x / dim, so that no sum overflows."""
        check.features_last(self, x, self.dim)
        z = x - _mean(x)
        u = z / (_mean(z.abs()) + self.eps)
        rms = ((u / math.sqrt(self.dim)).square().sum(-1, keepdim=True) + self.eps).sqrt()
        return u / rms * self.weight.to(x.dtype) + self.bias.to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize cut vectors: a message of the means, and one of the deviations, which need these."""
        check.features_last(self, part.whole, self.dim)
        last, kind = part.whole.ndim - 1, part.local.dtype
        weight, bias = (part.parameter(self, n, p, last) for n, p in (("weight", self.weight), ("bias", self.bias)))
        z, _, size, square = part.deviations(part.local, (last,))
        u = z / (size + self.eps)
        rms = (square / (size + self.eps).square() + self.eps).sqrt()
        return (u / rms).to(kind) * weight.to(kind) + bias.to(kind)


def _mean(x: Tensor) -> Tensor:
    return (x / x.shape[-1]).sum(-1, keepdim=True)
