"""SeeDNorm: an RMSNorm whose gain moves with its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts
from normkit.statistics import accurate


@method(
    "seednorm",
    paper="SeeDNorm: Self-Rescaled Dynamic Normalization (Cai et al., 2025), arXiv 2510.22777",
    evidence="abstract",
    shape="... C",
    over="C",
    replaces=("rmsnorm", "layernorm"),
    aliases=("self-rescaled-dynamic-norm",),
    provenance="the paper's equation as public readers quote it, the same as in a public class; no code of the "
    "authors, and eps is this library's choice",
)
class SeeDNorm(Norm):
    """Divide each vector by its root mean square, and multiply it by a gain that depends on the vector itself.

    For transformers, where an RMSNorm takes a vector's length away: here it comes back through the gain. The gain
    depends on the input, so that nothing folds into the next layer. Where that or time counts, take ``rmsnorm``.

    With ``heads`` equal runs of entries, <x, beta> the product of a run of x with that of beta, one number for all
    entries of the run,

        y = (tanh(<x, beta>) * alpha + weight) * x / sqrt(mean(x²) + eps)

    The mean is over all entries. ``beta`` starts at zero, and so it starts as an RMSNorm; ``alpha`` has no gradient
    before ``beta`` has moved. ``alpha`` and ``beta`` want weight decay, unlike other gains.

    Args:
        dim: size of the last axis.
        heads: a divisor of ``dim``: 1 for language models, 16 in the paper's ViT-B, where 1 diverges.
        eps: added to the mean square under the root.

    SeeDNorm: Self-Rescaled Dynamic Normalization (ICLR 2026), arXiv 2510.22777.

    Differs from the paper in: what it does for vision besides, the product divided by ``dim`` and dropout, is left out.
    """

    def __init__(self, dim: int, *, heads: int = 1, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.heads = check.size(self, "heads", heads)
        check.divides(self, "heads", heads, "dim", dim)
        self.rule = ops.Row(eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(dim))
        self.alpha = nn.Parameter(torch.ones(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose last axis has ``dim`` entries."""
        check.features_last(self, x, self.dim)
        z = accurate(x)
        runs = (self.heads, self.dim // self.heads)
        s = torch.tanh((z * self.beta).unflatten(-1, runs).sum(-1, keepdim=True))
        gain = (s * self.alpha.view(runs) + self.weight.view(runs)).flatten(-2)
        return (gain * ops.row_norm(z, rule=self.rule)).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize cut vectors, whose products and sum of squares are one message."""
        check.features_last(self, part.whole, self.dim)
        last, z = part.whole.ndim - 1, accurate(part.local)
        gains = (("weight", self.weight), ("alpha", self.alpha), ("beta", self.beta))
        weight, alpha, beta = (part.parameter(self, name, value, last) for name, value in gains)
        run = torch.arange(z.shape[-1], device=z.device).add(part.begin[-1]) // (self.dim // self.heads)
        products = z.new_zeros(*z.shape[:-1], self.heads).index_add(-1, run, z * beta)
        products, square = part.total((last,), products, z.square().sum(-1, keepdim=True))
        gain = torch.tanh(products).to(z.dtype)[..., run] * alpha + weight
        return (gain * (z * self.rule.factor(square, self.dim).to(z.dtype))).to(part.local.dtype)
