"""Fixup: a residual block of convolutions that trains without normalization."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Conv2d


@method(
    "fixup-block",
    paper="Fixup Initialization: Residual Learning Without Normalization (Zhang, Dauphin, Ma, 2019), arXiv 1901.09321",
    shape="N C H W",
    over="",
)
class FixupBlock(Method):
    """Add two or three convolutions to their input, with scalar shifts and a multiplier in the place of norms.

    For residual networks of any depth: the last convolution starts at 0 and the others small enough that the first step
    changes the output as much in a deep network as in a shallow one. ``skipinit`` needs one number a branch and no rule
    for the start.

    With scalars bias1a ... and scale,

        y = relu(scale conv2(relu(conv1(x + bias1a) + bias1b) + bias2a) + bias2b + shortcut)

    and of a bottleneck conv1 (1x1), conv2 (3x3), conv3 (1x1) in the same way, a quarter of the channels inside. The
    shortcut is x; where the shape changes it is made of x + bias1a.

    Args:
        in_channels: of the input.
        out_channels: of the result; None: the same.
        stride: of the first 3x3 convolution.
        shortcut: what a change of shape takes: ``"pad"``, every stride-th pixel and as many channels of zeros, which
            doubles them; ``"conv"``, a 1x1 convolution.
        bottleneck: three convolutions.
        num_layers: L, the number of blocks in the network: all convolutions of a branch but the last start as He's by
            fan-out times L^(-1/(2 m - 2)), m the convolutions of the branch. None: He's as they are.

    The authors train scalars at a tenth of the learning rate, and start the classifier at 0.

    Fixup Initialization (Zhang, Dauphin, Ma, 2019), arXiv 1901.09321.
    """

    def __init__(
        self,
        in_channels: int,
        *,
        out_channels: int | None = None,
        stride: int = 1,
        shortcut: str = "pad",
        bottleneck: bool = False,
        num_layers: int | None = None,
    ):
        super().__init__()
        self.in_channels = check.size(self, "in_channels", in_channels)
        self.out_channels = in_channels if out_channels is None else check.size(self, "out_channels", out_channels)
        self.stride = check.size(self, "stride", stride)
        self.shortcut = check.choice(self, "shortcut", shortcut, ("pad", "conv"))
        self.bottleneck = bool(bottleneck)
        self.changes = self.stride != 1 or self.out_channels != in_channels
        self._build()
        self._start(1 if num_layers is None else check.size(self, "num_layers", num_layers))

    def _build(self) -> None:
        before, after = self.in_channels, self.out_channels
        if self.changes and self.shortcut == "pad" and after != 2 * before:
            raise ValueError(
                f"{type(self).__name__}: out_channels must be {2 * before} where shortcut='pad' changes the shape, not "
                f"{after}; shortcut='conv' takes any"
            )
        if self.bottleneck:
            if after % 4:
                raise ValueError(
                    f"{type(self).__name__}: out_channels must be a multiple of 4 with bottleneck=True, not {after}"
                )
            width = after // 4
            sizes = [(before, width, 1, 1), (width, width, 3, self.stride), (width, after, 1, 1)]
        else:
            sizes = [(before, after, 3, self.stride), (after, after, 3, 1)]
        self.last = len(sizes)
        for place, (ins, outs, kernel, stride) in enumerate(sizes, 1):
            conv = Conv2d(ins, outs, kernel, stride=stride, padding=kernel // 2, bias=False)
            setattr(self, f"conv{place}", conv)
            for letter in "ab":
                setattr(self, f"bias{place}{letter}", nn.Parameter(torch.zeros(1)))
        self.scale = nn.Parameter(torch.ones(1))
        if self.changes and self.shortcut == "conv":
            self.downsample = Conv2d(before, after, 1, stride=self.stride, bias=False)

    @torch.no_grad()
    def _start(self, layers: int) -> None:
        share = layers ** (-1 / (2 * self.last - 2))
        for name, weight in self.named_parameters():
            if weight.dim() == 4:
                fan_out = weight[0, 0].numel() * len(weight)
                std = 0.0 if name == f"conv{self.last}.weight" else math.sqrt(2 / fan_out)
                weight.normal_(0, std * (1.0 if name == "downsample.weight" else share))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to ``x`` (N, C, H, W)."""
        check.channels_first(self, x, self.in_channels, least=4, most=4)
        h = first = x + self._number("bias1a", x)
        for place in range(1, self.last):
            h = F.relu(getattr(self, f"conv{place}")(h) + self._number(f"bias{place}b", x))
            h = h + self._number(f"bias{place + 1}a", x)
        h = getattr(self, f"conv{self.last}")(h) * self._number("scale", x) + self._number(f"bias{self.last}b", x)
        return F.relu(h + (self._shortcut(first) if self.changes else x)).to(x.dtype)

    def _number(self, name: str, x: Tensor) -> Tensor:
        return getattr(self, name).to(x.dtype)

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.shortcut == "conv":
            return self.downsample(x)
        fewer = x[:, :, :: self.stride, :: self.stride]
        return torch.cat([fewer, torch.zeros_like(fewer)], 1)
