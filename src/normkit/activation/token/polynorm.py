"""PolyNorm: an activation made of normalized powers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts
from normkit.statistics import accurate


@method(
    "polynorm",
    paper="Polynomial Composition Activations: Unleashing the Dynamics of Large Language Models (Zhuo et al., 2024), "
    "arXiv 2411.03884",
    shape="... C",
    over="C",
    aliases=("PolyCom", "LigerPolyNorm", "polynomial-composition"),
    exempt={"batches gains": "the gradient of a few numbers is torch's sum over all entries, a part on each thread"},
)
class PolyNorm(Norm):
    """Divide a vector, its squares and its cubes each by their root mean square, and add them up with learned weights.

    For the MLPs of language models, in the place of GELU or of the gate; the paper has a lower loss than SwiGLU's at
    one billion parameters. Unlike those it needs the whole vector, also where a layer is split over devices.

    With n(u) = u / sqrt(mean(u²) + eps) over the last axis,

        y = weight[0] * n(x³) + weight[1] * n(x²) + weight[2] * n(x) + bias

    Four numbers for the layer, not for each channel: the cube's weight comes first, and all three start at 1/3.

    Args:
        eps: added to the mean square of each power, so that small inputs are damped more in the cube.

    Polynomial Composition Activations: Unleashing the Dynamics of Large Language Models (Zhuo et al., ICLR 2025), arXiv
    2411.03884.

    Differs from Liger's LigerPolyNorm in: ``bias`` starts at 0, as in the authors' code, not at 1. From the authors'
    code in: powers of half precision are taken in float32, where they do not overflow.
    """

    def __init__(self, *, eps: float = 1e-6):
        super().__init__()
        self.rule = ops.Row(eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.full((3,), 1 / 3))
        self.bias = nn.Parameter(torch.zeros(1))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Mix the normalized powers of ``x`` over its last axis."""
        check.features_last(self, x, x.shape[-1] if isinstance(x, Tensor) and x.dim() else 1)
        terms = (ops.row_norm(u, w, rule=self.rule) for u, w in zip(_powers(x), self.weight.split(1), strict=True))
        return sum(terms, start=self.bias).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Mix the powers of cut vectors, whose three sums of squares are one message."""
        weight, bias = part.shared(self, "weight", self.weight), part.shared(self, "bias", self.bias)
        powers, dim = _powers(part.local), part.whole.shape[-1]
        squares = part.total((part.whole.ndim - 1,), *(u.square().sum(-1, keepdim=True) for u in powers))
        factors = (self.rule.factor(s, dim).to(powers[0].dtype) for s in squares)
        terms = (w * (u * r) for w, u, r in zip(weight, powers, factors, strict=True))
        return sum(terms, start=bias).to(part.local.dtype)


def _powers(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cube, square and the vector itself, in the type of the arithmetic."""
    z = accurate(x)
    square = z.square()
    return square * z, square, z
