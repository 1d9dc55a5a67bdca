"""Norms: a method, its card, its docstring."""

import torch
from torch import Tensor, nn

import normkit as nk
from normkit import check


@nk.method(
    "median-norm",
    paper="An example for this page",
    shape="... C",
    over="C",
    invariant=("shift",),
    evidence="equations",
    room="robust",
)
class MedianNorm(nk.Norm):
    """Subtract each vector's median, then multiply by a learned gain.

    For vectors with outliers, which a mean would follow. Over the last axis,

        y = weight * (x - median(x))

    Args:
        dim: size of the last axis.

    An example for this page.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose last axis has ``dim`` entries."""
        check.features_last(self, x, self.dim)
        return (self.weight * (x - x.median(-1, keepdim=True).values)).to(x.dtype)
