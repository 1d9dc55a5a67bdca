"""A convolution whose patches are points of the ball of Poincaré."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.manifold import _poincare
from normkit.statistics import accurate


@method(
    "poincare-conv2d",
    paper="Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027",
    shape="N C H W",
    over="",
    example={"out_channels": 6, "kernel_size": 3},
    exempt=_poincare.BORDER,
)
class PoincareConv2d(Method):
    """Take the vectors of each patch of an image, joined, through ``poincare-linear``.

    For hyperbolic networks on images.

    Inputs and outputs are tangent vectors at the origin, one a pixel. They are first multiplied by B(C k^2 / 2, 1/2) /
    B(C / 2, 1/2), with B Euler's beta function: the length of joined vectors then stays in proportion.

    Args:
        in_channels: size of the vectors of the input.
        out_channels: size of those of the output.
        kernel_size: k, the side of a patch.
        stride: from patch to patch.
        padding: zeros around the image.
        bias: learn a bias.
        curvature: c, minus the curvature.
        id_init: start from half the identity; False: from normal numbers.

    Input (N, in_channels, H, W). State: ``weight`` (in_channels k^2, out_channels), rows in the order of
    torch.nn.functional.unfold; ``bias`` (out_channels,), zeros at the start.

    Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027.

    Differs from the authors' code in: the size of the output for a stride, which theirs often gets wrong.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        curvature: float = 1.0,
        id_init: bool = True,
    ):
        super().__init__()
        self.in_channels = check.size(self, "in_channels", in_channels)
        self.out_channels = check.size(self, "out_channels", out_channels)
        self.kernel_size = check.size(self, "kernel_size", kernel_size, most=1024)
        self.stride = check.size(self, "stride", stride)
        self.padding = check.size(self, "padding", padding, least=0, most=1024)
        self.curvature = check.number(self, "curvature", curvature, 0.0, open_low=True)
        self.weight, self.bias = _poincare.start(in_channels * kernel_size**2, out_channels, bias, id_init)

    def forward(self, x: Tensor) -> Tensor:
        """Return images of tangent vectors at the origin."""
        check.channels_first(self, x, self.in_channels, 4, 4)
        height, width = (self._places(side) for side in x.shape[2:])
        joined = _log_beta(self.in_channels * self.kernel_size**2 / 2) - _log_beta(self.in_channels / 2)
        patches = F.unfold(accurate(x) * math.exp(joined), self.kernel_size, padding=self.padding, stride=self.stride)
        output = _poincare.linear(patches.mT, self.weight, self.bias, self.curvature)
        return output.mT.reshape(x.shape[0], self.out_channels, height, width).to(x.dtype)

    def _places(self, side: int) -> int:
        places = (side + 2 * self.padding - self.kernel_size) // self.stride + 1
        if places < 1:
            raise ValueError(f"PoincareConv2d: x has a side of {side}, below kernel_size={self.kernel_size}")
        return places


def _log_beta(a: float) -> float:
    """The logarithm of Euler's beta function of a and 1/2."""
    return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
