"""Global normalization of a control video: one scale for all clips."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

CONSTANT = "both percentiles are equal: 0/0, as in the authors' code"


@method(
    "global-control-norm",
    paper="LongVie: Multimodal-Guided Controllable Ultra-Long Video Generation (Gao et al., 2025), arXiv 2508.03694",
    shape="T H W",
    over="T H W",
    example={"stride": 2},
    exempt={
        "extremes zeros": CONSTANT,
        "extremes ones": CONSTANT,
        "extremes offset bfloat16": "1e4 and a few more are the same in bfloat16: all values are equal",
        "extremes offset float16": "1e4 and a few more are the same in float16: both percentiles are equal",
        "extremes tiny float16": "1e-20 is 0 in float16: all values are equal",
        "empty": "a video has no batch",
    },
)
class GlobalControlNorm(Method):
    """Clip a whole video at two percentiles of all its values, and turn it over into [0, 1], near being 1.

    For the depth that controls a long video generated clip by clip: the same depth has the same grey value in every
    clip, where percentiles of each clip make it jump at the seams. The video is cut to its first T' = 1 + stride *
    ((T - 1) // stride) frames; with a and b the percentiles ``low`` and ``high`` of ALL values that are left, linear
    between two of them,

        y = (b - clip(signal, a, b)) / (b - a)

    A video whose percentiles are equal gives 0/0, NaN. For a signal that is not a depth use 1 - y.

    Args:
        low, high: the percentiles, from 0 to 100.
        stride: frames from the start of one clip to that of the next.

    ``module(signal)``: (frames, ...) -> (frames', ...). ``clips(signal)``: (clips, stride + 1, ...), where neighbours
    share a frame.

    LongVie: Multimodal-Guided Controllable Ultra-Long Video Generation (Gao et al., 2025), arXiv 2508.03694.
    """

    def __init__(self, *, low: float = 5, high: float = 95, stride: int = 80):
        super().__init__()
        self.low = check.number(self, "low", low, 0, 100)
        self.high = check.number(self, "high", high, 0, 100)
        if self.low >= self.high:
            raise ValueError(f"GlobalControlNorm: low must be less than high, but they are {low} and {high}")
        self.stride = check.size(self, "stride", stride)

    def forward(self, signal: Tensor) -> Tensor:
        """Normalize a video (frames, ...), cut to whole clips."""
        check.floating(self, signal, "signal")
        if signal.dim() == 0:
            raise ValueError("GlobalControlNorm: signal must have an axis of frames, but it is a single number")
        frames = signal.shape[0]
        kept = signal[: 1 + self.stride * ((frames - 1) // self.stride)] if frames else signal
        exact = accurate(kept)
        if not exact.numel():
            return kept
        low, high = _percentiles(exact, self.low, self.high)
        return ((high - torch.minimum(torch.maximum(exact, low), high)) / (high - low)).to(signal.dtype)

    def clips(self, signal: Tensor) -> Tensor:
        """Normalize a video and cut it into clips of ``stride + 1`` frames: (clips, stride + 1, ...)."""
        y = self(signal)
        count = max(len(y) - 1, 0) // self.stride
        starts = range(0, count * self.stride, self.stride)
        cut = [y[start : start + self.stride + 1] for start in starts]
        return torch.stack(cut) if cut else y.new_empty(0, self.stride + 1, *y.shape[1:])


def _percentiles(x: Tensor, *wanted: float) -> list[Tensor]:
    """Percentiles of all values; unlike torch.quantile for any number of them, and differentiable."""
    ordered = x.flatten().sort().values
    percentiles = []
    for percent in wanted:
        place = percent / 100 * (ordered.numel() - 1)
        below = int(place)
        above = min(below + 1, ordered.numel() - 1)
        percentiles.append(torch.lerp(ordered[below], ordered[above], place - below))
    return percentiles
