"""The normalizer-free block: a pre-activation bottleneck whose variance is known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.weight.scaled_weight_standardization import nf_gamma, standardize

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "celu": F.celu,
    "elu": F.elu,
    "gelu": partial(F.gelu, approximate="tanh"),
    "leaky_relu": F.leaky_relu,
    "log_sigmoid": F.logsigmoid,
    "log_softmax": partial(F.log_softmax, dim=1),
    "relu": F.relu,
    "relu6": F.relu6,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "tanh": torch.tanh,
}


class NFConv2d(nn.Module):
    """A convolution of a standardized weight, padded as TensorFlow's "SAME"."""

    def __init__(self, ins: int, outs: int, kernel: int, stride: int, eps: float):
        super().__init__()
        self.kernel, self.stride, self.eps = kernel, stride, eps
        self.weight = nn.Parameter(torch.randn(outs, ins, kernel, kernel) / math.sqrt(ins * kernel * kernel))
        self.gain = nn.Parameter(torch.ones(outs))
        self.bias = nn.Parameter(torch.zeros(outs))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x``."""
        weight = standardize(self.weight, self.gain, self.eps).to(x.dtype)
        width, height = (self._padding(x.shape[axis]) for axis in (3, 2))
        padded = x if self.kernel == 1 else F.pad(x, (*width, *height))
        return F.conv2d(padded, weight, self.bias.to(x.dtype), stride=self.stride)

    def _padding(self, size: int) -> tuple[int, int]:
        """Before and after an axis; an odd one goes after."""
        total = (-(-size // self.stride) - 1) * self.stride + self.kernel - size
        return (total // 2, total - total // 2) if total > 0 else (0, 0)


@method(
    "nf-block",
    paper="Characterizing Signal Propagation to Close the Performance Gap in Unnormalized ResNets (Brock et al., "
    "2021), arXiv 2101.08692",
    shape="N C H W",
    over="",
    example={"bottleneck_ratio": 0.5, "activation": "silu"},
    exempt={"extremes huge float16": "6e4 times the activation's gain is infinite"},
)
class NFBlock(Method):
    """Add a bottleneck of standardized convolutions to the stream, scaled so that its variance is known.

    For residual networks without norms, trained with ``agc`` at large batches. With f the activation times its
    ``nf_gamma`` and convolutions of weights as ``scaled-weight-standardization`` makes them,

        o = beta f(x),    y = alpha skip_gain conv2(f(conv1(f(conv0(o))))) + shortcut

    The shortcut is x, or conv_shortcut(o) where the shape changes. :func:`nf_betas` gives each block's beta, one over
    the deviation expected at its input.

    Args:
        in_channels: of the input.
        out_channels: of the result; None: the same.
        stride: of conv1 and of the shortcut.
        alpha: share of the branch.
        beta: what the input's activation is multiplied by.
        bottleneck_ratio: channels inside, as a share of out_channels.
        kernel_size: of conv1; conv0, conv2 and the shortcut have 1x1. Padding is TensorFlow's "SAME": ceil(H / stride)
            rows come out, and an odd row of zeros goes after.
        activation: a name of ``nf_gamma`` but glu; gelu is the tanh form.
        eps: of the standardization.
        se_ratio: hidden features, as a share, of a squeeze-excite on the branch, 2 sigmoid(...); None: there is none.
        stochdepth_rate: share of samples that leave the branch out in training; the others are not scaled up.

    State: ``conv0``, ``conv1``, ``conv2`` and ``conv_shortcut`` with ``weight``, ``gain`` (ones), ``bias`` (zeros);
    ``skip_gain`` (1,), zero, so that a block starts as its shortcut; with ``se_ratio`` ``excite``.

    Characterizing Signal Propagation to Close the Performance Gap in Unnormalized ResNets (Brock, De, Smith, 2021),
    arXiv 2101.08692.
    """

    conv0: NFConv2d
    conv1: NFConv2d
    conv2: NFConv2d
    conv_shortcut: NFConv2d | None

    def __init__(
        self,
        in_channels: int,
        *,
        out_channels: int | None = None,
        stride: int = 1,
        alpha: float = 0.2,
        beta: float = 1.0,
        bottleneck_ratio: float = 0.25,
        kernel_size: int = 3,
        activation: str = "relu",
        eps: float = 1e-4,
        se_ratio: float | None = None,
        stochdepth_rate: float = 0.0,
    ):
        super().__init__()
        self.in_channels = check.size(self, "in_channels", in_channels)
        outs = in_channels if out_channels is None else check.size(self, "out_channels", out_channels)
        check.size(self, "stride", stride)
        self.alpha, self.beta = check.number(self, "alpha", alpha), check.number(self, "beta", beta)
        ratio = check.number(self, "bottleneck_ratio", bottleneck_ratio, 0.0, check.LARGEST, open_low=True)
        width = check.size(self, "out_channels times bottleneck_ratio", int(outs * ratio))
        check.size(self, "kernel_size", kernel_size, most=1023)
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        self.stochdepth_rate = check.number(self, "stochdepth_rate", stochdepth_rate, 0.0, 1.0)
        check.eps(self, eps)
        sizes = [("0", in_channels, width, 1, 1), ("1", width, width, kernel_size, stride), ("2", width, outs, 1, 1)]
        if stride > 1 or outs != in_channels:
            sizes.append(("_shortcut", in_channels, outs, 1, stride))
        for name, before, after, kernel, step in sizes:
            setattr(self, f"conv{name}", NFConv2d(before, after, kernel, step, eps))
        if len(sizes) < 4:
            self.conv_shortcut = None
        self.skip_gain = nn.Parameter(torch.zeros(1))
        self.excite = None if se_ratio is None else Excite(outs, self._hidden(outs, se_ratio))

    def _hidden(self, channels: int, ratio: float) -> int:
        ratio = check.number(self, "se_ratio", ratio, 0.0, check.LARGEST, open_low=True)
        return check.size(self, "out_channels times se_ratio", int(channels * ratio))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to ``x`` (N, C, H, W)."""
        check.channels_first(self, x, self.in_channels, least=4, most=4)
        o = self._act(x) * self.beta
        shortcut = x if self.conv_shortcut is None else self.conv_shortcut(o)
        o = self.conv2(self._act(self.conv1(self._act(self.conv0(o)))))
        o = o if self.excite is None else self.excite(o)
        if self.training and self.stochdepth_rate:
            draws = torch.rand(len(o), 1, 1, 1, dtype=torch.float32, device=o.device)
            o = o * (draws >= self.stochdepth_rate).to(o.dtype)
        return (o * (self.skip_gain.to(o.dtype) * self.alpha) + shortcut).to(x.dtype)

    def _act(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](x) * nf_gamma[self.activation]


class Excite(nn.Module):
    """Multiply channels by twice a sigmoid of what two linear maps make of their means."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.fc0, self.fc1 = Linear(channels, hidden), Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Weigh the channels of ``x``."""
        weight = torch.sigmoid(self.fc1(F.relu(self.fc0(x.mean((2, 3))))))
        return x * (2 * weight)[:, :, None, None]


def nf_betas(depths: Sequence[int], alpha: float = 0.2) -> list[list[float]]:
    """Return the beta of every block, by stages of so many blocks.

    The variance grows by alpha^2 with each block. In the first block of a stage, whose shortcut reads the scaled
    activation, it begins at 1 again.

    >>> [[round(beta, 3) for beta in stage] for stage in nf_betas([2, 1], alpha=1.0)]
    [[1.0, 0.707], [0.577]]
    """
    std, betas = 1.0, []
    for depth in depths:
        stage = []
        for block in range(depth):
            stage.append(1 / std)
            std = math.sqrt((1.0 if block == 0 else std**2) + alpha**2)
        betas.append(stage)
    return betas
