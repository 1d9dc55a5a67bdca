"""Motion-adaptive normalization: SPADE with a field of scene motion in place of the segmentation map."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.conditional._map import ResizedMapNorm
from normkit.catalog import method


@method(
    "motion-adaptive-norm",
    paper="MikuDance: Animating Character Art with Mixed Motion Dynamics (Zhang et al., 2024), arXiv 2411.08656",
    shape="N C H W",
    over="H W",
    inputs={"motion": "N motion_channels h w"},
    example={"motion_channels": 2, "hidden_channels": 6},
    invariant=("shift", "scale"),
    exempt={"batches": "the order of sums in torch's convolution follows batch and threads"},
)
class MotionAdaptiveNorm(ResizedMapNorm):
    """Normalize each channel of each frame, then give every pixel a gain and a shift made from a motion field.

    For video generators that shall follow the camera.

    Let n be the instance norm of x, and p the field resized to the nearest entry (its vectors stay in pixels of the
    original field). With a = relu(conv(p)), (N, hidden_channels, H, W),

        y = n * (1 + conv_gamma(a)) + conv_beta(a)

    Args:
        num_features: C.
        motion_channels: channels of the field, 2 for (dx, dy).
        hidden_channels: channels of a.
        kernel_size: of the three convolutions, odd; zeros are padded.
        eps: added to the variance under the root.

    Input x ``(N, C, H, W)``, frames folded into N, and motion ``(N, motion_channels, h, w)`` of any size.

    MikuDance: Animating Character Art with Mixed Motion Dynamics (Zhang et al., 2024), arXiv 2411.08656.
    """

    def __init__(
        self,
        num_features: int,
        *,
        motion_channels: int = 2,
        hidden_channels: int = 128,
        kernel_size: int = 3,
        eps: float = 1e-5,
    ):
        motion_channels = check.size(self, "motion_channels", motion_channels)
        super().__init__(num_features, motion_channels, hidden_channels, kernel_size, eps=eps)

    def forward(self, x: Tensor, motion: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with the field ``motion``."""
        return self._forward(x, motion, "motion")
