"""The range of activations or weights, averaged over calibration batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Fitted
from normkit.quant._grid import PAPER, bounds
from normkit.statistics import accurate


class Range(NamedTuple):
    """The distance from the smallest to the largest value, and the smallest, one number or one a channel."""

    range: Tensor
    zero_point: Tensor


@method("measured-range", paper=PAPER, shape="N C *", over="N C *")
class MeasuredRange(Fitted):
    """Average the smallest and the largest value of samples, or of output channels, over the batches so far.

    For the grids of post-training quantization.

    The smallest and the largest value of each sample are averaged over the batch, so that one outlier does not set the
    range; with ``per_channel`` those of each entry of axis 0, for weights. 0 is always inside. The range is their
    difference, 1 where that is 0, and the zero point the smallest.

    Args:
        per_channel: one range for each entry of axis 0.

    A call takes a batch and returns ``range`` and ``zero_point``, (1,) or (C,), averaged over all calls. State: both,
    and ``count``.

    Improving Post Training Neural Quantization (Hubara et al., 2021), arXiv 2006.10518.
    """

    late = ("range", "zero_point")
    range: Tensor
    zero_point: Tensor
    count: Tensor

    def __init__(self, *, per_channel: bool = False):
        super().__init__()
        self.per_channel = bool(per_channel)
        self.register_buffer("range", torch.empty(0))
        self.register_buffer("zero_point", torch.empty(0))
        self.register_buffer("count", torch.tensor(0))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Range:
        """Take in a batch, and return what was measured so far."""
        check.floating(self, x)
        if x.dim() < 1 or not x.numel() or bool(x.isnan().any()):
            what = "holds NaN" if x.numel() and x.dim() else f"is empty or a scalar, of shape {tuple(x.shape)}"
            raise ValueError(f"{type(self).__name__}: x must hold numbers along axis 0, but it {what}")
        flat = accurate(x).reshape(len(x), -1)
        low, high = flat.amin(1), flat.amax(1)
        if not self.per_channel:
            low, high = low.mean(0, keepdim=True), high.mean(0, keepdim=True)
        if int(self.count) and low.shape != self.range.shape:
            raise ValueError(f"{type(self).__name__}: x has {len(low)} channels, but before it had {len(self.range)}")
        known = int(self.count)
        for name, value in zip(("range", "zero_point"), bounds(low, high), strict=True):
            old = getattr(self, name)
            setattr(self, name, value if not known else (old * known + value) / (known + 1))
        self.count += 1
        return Range(self.range.clone(), self.zero_point.clone())
