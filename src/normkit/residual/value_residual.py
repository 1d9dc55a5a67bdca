"""Value residual: every layer's attention takes in the first layer's values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method


@method(
    "value-residual",
    paper="Value Residual Learning (Zhou et al., 2024), arXiv 2410.17897",
    shape="... C",
    over="",
    inputs={"first": "... C"},
    aliases=("resformer",),
)
class ValueResidual(Method):
    """Mix a layer's attention values with those of the first layer.

    For deep transformers, whose late layers otherwise read values that are all alike. Every layer but the first uses y
    for its values; a cache of keys and values holds y.

        y = 0.5 v + 0.5 first        or, learned:        y = weight[0] v + weight[1] first

    Args:
        learned: learn the two weights, which start at 0.5.

    ``module(v, first)``: both of one shape, before grouped heads are repeated; ``first`` are the values of layer 0.
    State, if learned: ``weight`` (2,).

    Value Residual Learning (Zhou et al., 2024), arXiv 2410.17897.
    """

    def __init__(self, learned: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), 0.5)) if learned else None

    def forward(self, v: Tensor, first: Tensor) -> Tensor:
        """Return the values that attention uses, of the same shape."""
        check.floating(self, v, "v")
        check.values(self, "first", first, v.shape, v)
        first = first.to(v.dtype)
        if self.weight is None:
            return 0.5 * v + 0.5 * first
        own, earlier = self.weight.to(v.dtype).unbind()
        return own * v + earlier * first
