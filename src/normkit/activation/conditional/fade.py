"""FADE: a gain and a shift for every pixel, from a feature map of the same size."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.conditional._map import MapNorm
from normkit.catalog import method


@method(
    "fade",
    paper="TSIT: A Simple and Versatile Framework for Image-to-Image Translation (Jiang et al., 2020), "
    "arXiv 2007.12072",
    shape="N C H W",
    over="N H W",
    inputs={"feature": "N feature_channels H W"},
    example={"feature_channels": 5},
    invariant=("shift", "scale"),
)
class FADE(MapNorm):
    """Normalize each channel, then give every pixel a gain and a shift made from another network's feature map.

    For image translation whose generator gets features of the content image at each of its scales. For a label map,
    which has to be resized and has no network of its own, take ``spade``; for the style stream ``fadain``.

    Feature-adaptive denormalization. With n the parameter-free norm of x, over the batch or each sample,

        y = n * (1 + conv_gamma(feature)) + conv_beta(feature)

    Args:
        num_features: C.
        feature_channels: channels of the feature map, C in the paper.
        kernel_size: of the two convolutions, odd; zeros are padded.
        norm: "batch" with running averages, or "instance".
        eps: added to the variance under the root.
        momentum: share of the new batch in the running averages; None weighs all batches alike.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input x ``(N, C, H, W)`` and feature ``(N, feature_channels, H, W)``; unlike in SPADE nothing is resized.

    TSIT: A Simple and Versatile Framework for Image-to-Image Translation (Jiang et al., 2020), arXiv 2007.12072.

    A batch with NaN enters the running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        feature_channels: int,
        kernel_size: int = 3,
        norm: str = "batch",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        feature_channels = check.size(self, "feature_channels", feature_channels)
        free = {"norm": norm, "eps": eps, "momentum": momentum, "sync": sync, "process_group": process_group}
        super().__init__(num_features, feature_channels, kernel_size, **free)
        self.feature_channels = feature_channels

    def forward(self, x: Tensor, feature: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``feature``; with batch norm, training moves the running averages."""
        check.channels_first(self, x, self.num_features, 4, 4)
        check.values(self, "feature", feature, (x.shape[0], self.feature_channels, *x.shape[2:]), x)
        return self._modulate(x, feature)
