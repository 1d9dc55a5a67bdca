"""Region normalization that finds its regions."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.spatial._region import region_norm
from normkit.catalog import method
from normkit.layers import Conv2d
from normkit.norm import Norm


@method(
    "regionnorm-learnable",
    paper="Region Normalization for Image Inpainting (Yu et al., 2019), arXiv 1911.10375",
    shape="N C H W",
    over="N H W",
    replaces=("instancenorm", "batchnorm"),
)
class RegionNormLearnable(Norm):
    """Split an image by a learned saliency map, normalize both regions apart, modulate them with maps of the saliency.

    For the later layers of inpainting networks, where hole and surroundings have grown together. In the early layers,
    where the hole is known, take ``regionnorm-basic``.

    With

        a = sigmoid(conv([mean of x over channels, max of x over channels]))        (N, 1, H, W)
        foreground: a >= threshold, without gradient
        r = (x - mean) / sqrt(var + eps T / S)        in either region, moments over the whole batch per channel
        y = r * (1 + gamma(a)) + beta(a)

    where S is the number of a region's pixels and T that of all; conv, gamma and beta are convolutions padded with
    zeros, the latter two with a bias. The batch's own moments are used in evaluation too.

    Args:
        num_features: C, the number of channels.
        threshold: saliency from which a pixel is foreground.
        kernel_size: of the three convolutions, 3 or 7.
        eps: added to the variance under the root, times T / S.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, H, W)``.

    Region Normalization for Image Inpainting (Yu et al., 2019), arXiv 1911.10375: RN-L.

    Differs from the paper, as the authors' code does, in: eps grows as a region shrinks. ``conv`` learns through gamma
    and beta only.
    """

    def __init__(
        self,
        num_features: int,
        *,
        threshold: float = 0.8,
        kernel_size: int = 7,
        eps: float = 1e-5,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.threshold = check.number(self, "threshold", threshold, 0, 1)
        self.kernel_size = check.choice(self, "kernel_size", kernel_size, (3, 7))
        self.eps = check.eps(self, eps)
        self.sync, self.process_group = sync, process_group
        self.conv = Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)
        self.gamma = Conv2d(1, 1, kernel_size, padding=kernel_size // 2)
        self.beta = Conv2d(1, 1, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features, 4, 4)
        exact = statistics.accurate(x)
        saliency = self._saliency(exact)
        foreground = saliency >= self.threshold
        y = region_norm(exact, foreground, eps=self.eps, sync=self.sync, group=self.process_group)
        return (y * (1 + self.gamma(saliency)) + self.beta(saliency)).to(x.dtype)

    def _saliency(self, x: Tensor) -> Tensor:
        pooled = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True).values], 1)
        return torch.sigmoid(self.conv(pooled))
