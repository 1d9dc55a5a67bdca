"""Norm tweaking's loss: a quantized block is to have the float one's statistics."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, root

CONSTANT = "the float outputs come first, and are constants without a gradient"


@method(
    "norm-tweaking-loss",
    paper="Norm Tweaking: High-performance Low-bit Quantization of Large Language Models (Li et al., 2024), "
    "arXiv 2309.02784",
    evidence="library",
    shape="... C",
    over="...",
    inputs={"x": "... C"},
    provenance="the loss as llmc has it; the authors' code is not public",
    exempt=dict.fromkeys(("gradcheck", "higher-derivatives", "extremes", "empty", "vmap gradient"), CONSTANT),
)
class NormTweakingLoss(Loss):
    """Compare mean and deviation of every channel between a float block's outputs and a quantized one's.

    For training the norms of a quantized model alone, block by block, in one pass. Batch norms can be put right without
    a gradient: see ``tune-batchnorm``.

    Over all axes but the last,

        mean_c (mean_c(target) - mean_c(x))² + mean_c (sd_c(target) - sd_c(x))²

    with unbiased deviations; that of a single row is 0. Zero does not mean equal outputs.

    ``loss(target, x)``: (..., C); no gradient flows to ``target``.

    Norm Tweaking (2024), arXiv 2309.02784.

    Differs from the paper in: squares and deviations, where it writes sizes and variances.
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, target: Tensor, x: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.floating(self, target, "target")
        if target.dim() == 0:
            raise ValueError(f"{type(self).__name__}: target must have channels on its last axis, but its shape is ()")
        check.values(self, "x", x, target.shape, target)
        (mean, deviation), (own, spread) = (_statistics(accurate(value)) for value in (target.detach(), x))
        return ((mean - own).square().mean() + (deviation - spread).square().mean()).to(target.dtype)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.reshape(-1, x.shape[-1])
    mean = rows.mean(0)
    square = (rows - mean).square().sum(0) / max(len(rows) - 1, 1)
    return mean, root(square)
