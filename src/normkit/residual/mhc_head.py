"""mHC's head: several residual streams become one, each by a share that depends on all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.residual.streams import small_normal, weighted_sums
from normkit.statistics import accurate, full_precision


def scores(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the products of ``weight`` (rows, n dim) with all streams of a token together, divided by their size.

    They are divided last: the backward pass keeps the streams and one number a token. ``eps`` is added to the mean
    square.
    """
    flat = accurate(x.flatten(-2))
    size = torch.linalg.vector_norm(flat, dim=-1, keepdim=True) * flat.shape[-1] ** -0.5
    return (flat @ weight.to(flat.dtype).mT) * torch.rsqrt(size.square() + eps)


@method(
    "mhc-head",
    paper="mHC: Manifold-Constrained Hyper-Connections (Xie et al., 2025), arXiv 2512.24880",
    evidence="library",
    shape="... streams C",
    over="streams C",
    example={"streams": 3},
)
class MHCHead(Method):
    """Sum several residual streams to one, each multiplied by a share between 0 and 1 that the token decides.

    For models of [mhc](mhc.md), after the last block and before the final norm. Per token, H the streams (n, dim),

        z = flat(H) / sqrt(mean(flat(H)²) + norm_eps)
        r = sigmoid(scale (weight z) + bias) + eps,        y = sum_s r_s H_s

    The shares do not sum to 1; with weight and bias zero each is 1/2 + eps.

    Args:
        dim: features of each stream.
        streams: how many streams there are, n.
        eps: what each share is more; 0 is honoured.
        norm_eps: added to the mean square of the streams.

    ``module(x)``: (..., streams, dim) to (..., dim). State: ``weight`` (n, n dim), normal with deviation 0.02, ``bias``
    (n,), zeros, ``scale`` (1,), one.

    mHC: Manifold-Constrained Hyper-Connections (Xie et al., 2025), arXiv 2512.24880; the form of DeepSeek-V4.
    """

    norm_eps = 1e-6  # pickles of before it came have none

    def __init__(self, dim: int, streams: int = 4, eps: float = 1e-6, norm_eps: float = 1e-6):
        super().__init__()
        self.dim, self.streams = check.size(self, "dim", dim), check.size(self, "streams", streams)
        self.eps = check.eps(self, eps)
        self.norm_eps = check.eps(self, norm_eps, "norm_eps")
        self.weight = small_normal(streams, streams * dim)
        self.bias = nn.Parameter(torch.zeros(streams))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return one stream of ``x`` (..., streams, dim)."""
        check.ends_in(self, x, (self.streams, self.dim))
        with full_precision(x):
            shares = torch.sigmoid(scores(x, self.weight, self.norm_eps) * self.scale + self.bias) + self.eps
            return weighted_sums(shares.unsqueeze(-2), x).squeeze(-2)
