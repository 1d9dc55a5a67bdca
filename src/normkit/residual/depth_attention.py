"""Depth attention: a softmax over earlier representations of the same token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.residual.norms import make_norm
from normkit.statistics import accurate, full_precision


def mixture(sources: Tensor, query: Tensor, norm: nn.Module) -> Tensor:
    """Return the mean of ``sources`` (count, ..., dim), weighted by a softmax of how their norms agree with a query."""
    with full_precision(sources):
        normed = accurate(norm(sources))
        shares = torch.softmax(normed @ query.to(normed.dtype), 0)
    return (shares.unsqueeze(-1) * accurate(sources)).sum(0).to(sources.dtype)


@method(
    "depth-attention",
    paper="Attention Residuals (Kimi Team, 2026), arXiv 2603.15031",
    evidence="library",
    shape="K ... C",
    over="C",
)
class DepthAttention(Method):
    """Weigh earlier representations of a token by a softmax over them, with one learned query for all tokens.

    For networks in which a layer reads what it needs of the layers before it, where a residual stream gives their sum.
    Over the sources v, (count, ..., dim),

        share = softmax over count of query . (v / sqrt(mean(v²) + 1e-6) * norm.weight),    y = sum share v

    The values are not normalized, and there is no 1 / sqrt(dim). A query of zeros, as at the start, gives the mean.

    Args:
        dim: size of the last axis.

    ``module(sources)``: (count, ..., dim) to (..., dim). State: ``query`` (dim,), at first 0, ``norm.weight`` (dim,).
    See [attention-residuals](attention-residuals.md) for the placement.

    Attention Residuals (Kimi Team, 2026), arXiv 2603.15031.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.query = nn.Parameter(torch.zeros(dim))
        self.norm = make_norm(self, "rmsnorm", dim)

    def forward(self, sources: Tensor) -> Tensor:
        """Return one vector of all sources (count, ..., dim)."""
        check.features_last(self, sources, self.dim, "sources", least=2)
        if len(sources) == 0:
            raise ValueError(f"DepthAttention: sources must be one or more, but their shape is {tuple(sources.shape)}")
        return mixture(sources, self.query, self.norm)
