"""L1 layer norm: the mean absolute deviation in the standard deviation's place."""

from __future__ import annotations

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "l1-layernorm",
    paper="Towards Accurate and Efficient Sub-8-Bit Integer Training (Guo et al., 2024), arXiv 2411.10948",
    evidence="equations",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    invariant=("shift", "scale"),
    messages="the sum of sizes about a mean, whose slope jumps at each value, needs the mean of all first",
)
class L1LayerNorm(RowNorm):
    """Centre each vector and divide by its mean absolute deviation: no square, no root.

    For quantized training, where squares overflow and the smoother loss surface helps. Where squares do no harm, take
    ``layernorm``.

    Over the last axis, with mu the mean and s = mean(|x - mu|),

        y = (x - mu) / (constant * s + eps) * weight + bias

    Args:
        dim: size of the last axis.
        eps: added to the deviation; 0 is honoured.
        constant: 1 in the paper; with sqrt(pi / 2) constant * s is the standard deviation of Gaussian data.

    Towards Accurate and Efficient Sub-8-Bit Integer Training (Guo et al., 2024), arXiv 2411.10948; the batch form
    goes back to arXiv 1802.09769 and 1803.01814.

    Differs from the paper in: its integer quantizers are not part of the module.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5, constant: float = 1.0):
        constant = check.number(self, "constant", constant, 0.0, open_low=True)
        rule = ops.Row(center=True, statistic="absolute", eps=check.eps(self, eps), constant=constant)
        super().__init__(check.size(self, "dim", dim), rule, bias=True)
