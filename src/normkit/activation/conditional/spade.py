"""SPADE: a gain and a shift for every pixel, from a segmentation map."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.conditional._map import ResizedMapNorm
from normkit.catalog import method


@method(
    "spade",
    paper="Semantic Image Synthesis with Spatially-Adaptive Normalization (Park et al., 2019), arXiv 1903.07291",
    shape="N C H W",
    over="H W",
    inputs={"segmap": "N label_channels h w"},
    aliases=("spatially-adaptive-norm",),
    example={"label_channels": 3, "hidden_channels": 6},
    invariant=("shift", "scale"),
    exempt={
        "batches rows": "the order of sums in torch's convolution follows batch and threads",
        "batches threads": "the order of sums in torch's convolution follows batch and threads",
        "batches gains": "the order of sums in torch's convolution follows batch and threads",
    },
)
class SPADE(ResizedMapNorm):
    """Normalize each channel, then give every pixel a gain and a shift made from a segmentation map.

    For generators that paint a layout: normalizing a uniform label away would lose it, modulating with it keeps it.
    Where the condition is the same for all pixels, take ``conditional-batchnorm`` or ``adaptive-groupnorm``.

    With n the parameter-free norm of x, p the map resized to the nearest entry and a = relu(conv(p)), of shape (N,
    hidden_channels, H, W),

        y = n * (1 + conv_gamma(a)) + conv_beta(a)

    Args:
        num_features: C.
        label_channels: channels of the segmentation map.
        hidden_channels: channels of a.
        kernel_size: of the three convolutions, odd; zeros are padded.
        norm: "instance", or "batch" with running averages (the published models: "batch" with ``sync``).
        eps: added to the variance under the root.
        momentum: share of the new batch in the running averages; None weighs all batches alike.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input x ``(N, C, H, W)`` and segmap ``(N, label_channels, h, w)`` of any size, floating point, usually one-hot.

    Semantic Image Synthesis with Spatially-Adaptive Normalization (Park et al., 2019), arXiv 1903.07291.

    Differs from the authors' code in: the hidden width, fixed to 128 there, is an argument. A batch with NaN enters the
    running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        label_channels: int,
        hidden_channels: int = 128,
        kernel_size: int = 3,
        norm: str = "instance",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        label_channels = check.size(self, "label_channels", label_channels)
        free = {"norm": norm, "eps": eps, "momentum": momentum, "sync": sync, "process_group": process_group}
        super().__init__(num_features, label_channels, hidden_channels, kernel_size, **free)

    def forward(self, x: Tensor, segmap: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``segmap``; with batch norm, training moves the running averages."""
        return self._forward(x, segmap, "segmap")
