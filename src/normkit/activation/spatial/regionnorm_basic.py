"""Region normalization with a given mask."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial._region import region_norm
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "regionnorm-basic",
    paper="Region Normalization for Image Inpainting (Yu et al., 2019), arXiv 1911.10375",
    shape="N C H W",
    over="N H W",
    inputs={"mask": "N 1 H W : bool"},
    replaces=("instancenorm", "batchnorm"),
    exempt={"padding": "the mask parts two regions and hides neither"},
)
class RegionNormBasic(Norm):
    """Normalize the valid and the corrupted pixels of a batch apart, each region by its own mean and deviation.

    For the early layers of inpainting networks, where the hole's values would shift the statistics of the rest. With S
    the number of a region's pixels, T that of all, mean and biased variance over the region, per channel over the
    whole batch,

        r = (x - mean) / sqrt(var + eps T / S)          in either region
        y = r * (1 + foreground_weight) + foreground_bias + background_bias          inside the foreground
        y = r * (1 + background_weight) + foreground_bias + background_bias          outside

    All four parameters start at 0. The batch's own moments are used in evaluation too.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root, times T / S.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, H, W)``; ``mask`` ``(N, 1, h, w)``, boolean or of numbers, is True (above 0.5) in the foreground,
    the valid pixels, and is resized to (H, W) by the nearest entry. It gets no gradient.

    Region Normalization for Image Inpainting (Yu et al., 2019), arXiv 1911.10375: RN-B.

    Differs from the paper, as the authors' code does, in: both biases are added everywhere, and eps grows as a region
    shrinks.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5, sync: bool = False, process_group=None):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.sync, self.process_group = sync, process_group
        self.foreground_weight = nn.Parameter(torch.zeros(num_features))
        self.foreground_bias = nn.Parameter(torch.zeros(num_features))
        self.background_weight = nn.Parameter(torch.zeros(num_features))
        self.background_bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalize ``x`` inside and outside of ``mask``."""
        check.channels_first(self, x, self.num_features, 4, 4)
        check.flags(self, "mask", mask, (x.shape[0], 1, None, None), x)
        exact = statistics.accurate(x)
        foreground = _resize(mask.detach(), exact) > 0.5
        y = region_norm(exact, foreground, eps=self.eps, sync=self.sync, group=self.process_group)
        inside, outside = (1 + w[:, None, None] for w in (self.foreground_weight, self.background_weight))
        gain = torch.where(foreground, inside, outside)
        return ops.affine(y * gain, None, self.foreground_bias + self.background_bias).to(x.dtype)


def _resize(mask: Tensor, x: Tensor) -> Tensor:
    mask = mask.to(x.dtype)
    return mask if mask.shape[2:] == x.shape[2:] else F.interpolate(mask, size=x.shape[2:], mode="nearest")
