"""The layer norm of Autoformer's seasonal part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "seasonal-layernorm",
    paper="Autoformer: Decomposition Transformers with Auto-Correlation for Long-Term Series Forecasting (Wu et al., "
    "2021), arXiv 2106.13008",
    evidence="library",
    shape="N T C",
    over="T C",
    replaces=("layernorm",),
    aliases=("AutoformerLayernorm", "my-layernorm"),
    exempt={"gradients bias": "it cancels in the mean over time, so it has no gradient"},
)
class SeasonalLayerNorm(Norm):
    """Give each step of a series zero mean and unit variance over its features, then each feature zero mean over time.

    For the seasonal part of a series, which must keep no trend. With h the layer norm of x over its features, gain and
    shift included,

        y = h - mean of h over T

    The shift cancels: ``bias`` is kept for checkpoints alone, enters nothing and has no gradient. Later steps act on
    earlier ones, and padding counts; a series of one step gives zeros.

    Args:
        dim: number of features.
        eps: added to the biased variance under the root.

    Input ``(N, T, dim)``.

    Autoformer: Decomposition Transformers with Auto-Correlation for Long-Term Series Forecasting (Wu et al., NeurIPS
    2021), arXiv 2106.13008.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, T, dim)."""
        check.values(self, "x", x, (None, None, self.dim), x)
        h = ops.row_norm(accurate(x), self.weight, rule=self.rule)
        return (h - h.mean(1, keepdim=True)).to(x.dtype)
