"""Broadcasted residual block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normkit import check, statistics
from normkit.activation.batch.batchnorm import BatchNorm
from normkit.activation.spatial.subspectralnorm import SubSpectralNorm
from normkit.catalog import method
from normkit.layers import Conv2d
from normkit.norm import Norm


@method(
    "broadcast-residual",
    paper="Broadcasted Residual Learning for Efficient Keyword Spotting (Kim et al., 2021), arXiv 2106.04140",
    shape="N C F T",
    over="N F T",
    example={"num_groups": 4, "dropout": 0.0},
    messages="two batch norms follow each other, and a convolution between them needs what the first one gives",
)
class BroadcastResidual(Norm):
    """Normalize a spectrogram in bands, average over its frequencies, and add what time says to every frequency.

    For audio on small devices, such as keyword spotting: two-dimensional features at the cost of one-dimensional ones.
    Where only its norm is wanted, in a network of another form, take ``subspectralnorm``.

    The block of BC-ResNet. With z = relu(batch_norm(1x1 conv of x)) if the channel count changes, else x,

        f = subspectral_norm(depthwise conv of z over frequency, kernel 3)
        t = silu(batch_norm(depthwise conv over time of the mean of f over frequency, kernel 3, dilation 2^index))
        y = relu(x + f + dropout(1x1 conv of t))          without x if the channel count changes

    where the second line has one frequency, which the third broadcasts. No convolution has a bias.

    Args:
        in_channels: C, the number of channels.
        out_channels: channels of the result, default C.
        index: stage of the network; the dilation over time is 2^index.
        stride: that of the convolution over frequency, and 1: all times are kept.
        num_groups: bands, a divisor of the number of frequencies after the stride.
        dropout: probability of dropping a channel of t in training.
        sync: join all moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, F, T)``, output ``(N, out_channels, F / stride[0], T)``, rounded up.

    Broadcasted Residual Learning for Efficient Keyword Spotting (Kim et al., 2021), arXiv 2106.04140; studied in A
    Study on Broadcast Networks for Music Genre Classification (2022).

    A batch with NaN or infinity enters the running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        in_channels: int,
        *,
        out_channels: int | None = None,
        index: int = 0,
        stride: Sequence[int] = (1, 1),
        num_groups: int = 5,
        dropout: float = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.in_channels = check.size(self, "in_channels", in_channels)
        self.out_channels = check.size(self, "out_channels", in_channels if out_channels is None else out_channels)
        self.dilation = 2 ** check.size(self, "index", index, 0)
        self.stride = _pair(self, stride)
        self.num_groups = check.size(self, "num_groups", num_groups)
        self.dropout = check.number(self, "dropout", dropout, 0, 1)
        out, shared = self.out_channels, {"sync": sync, "process_group": process_group}
        if out != in_channels:
            self.expand = Conv2d(in_channels, out, 1, bias=False)
            self.expand_norm = BatchNorm(out, **shared)
        pad = self.dilation
        self.frequency = Conv2d(out, out, (3, 1), stride=self.stride, padding=(1, 0), groups=out, bias=False)
        self.frequency_norm = SubSpectralNorm(out, num_groups=num_groups, **shared)
        self.temporal = Conv2d(out, out, (1, 3), padding=(0, pad), dilation=(1, pad), groups=out, bias=False)
        self.temporal_norm = BatchNorm(out, **shared)
        self.project = Conv2d(out, out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``; in training move the running moments."""
        self._check(x)
        exact = statistics.accurate(x)
        keeps = self.out_channels == self.in_channels
        z = exact if keeps else torch.relu(self.expand_norm(self.expand(exact)))
        f = self.frequency_norm(self.frequency(z))
        t = F.silu(self.temporal_norm(self.temporal(f.mean(2, keepdim=True))))
        t = F.dropout2d(self.project(t), self.dropout, self.training)
        return torch.relu(exact + f + t if keeps else f + t).to(x.dtype)

    def _check(self, x: Tensor) -> None:
        check.channels_first(self, x, self.in_channels, 4, 4)
        frequencies = -(-x.shape[2] // self.stride[0])
        check.divides(self, "num_groups", self.num_groups, "frequencies", frequencies)
        if self.out_channels == self.in_channels and frequencies != x.shape[2]:
            raise ValueError(
                f"BroadcastResidual: x of shape {tuple(x.shape)} cannot be added to the {frequencies} frequencies "
                f"that stride={self.stride} leaves; change the channel count, or use stride=(1, 1)"
            )
        if self.training and not self.temporal_norm.sync and x.shape[0] * x.shape[3] == 1:
            raise ValueError(f"BroadcastResidual: x of shape {tuple(x.shape)} has one time; training needs more")


def _pair(owner: object, stride: Sequence[int]) -> tuple[int, int]:
    if isinstance(stride, int) or len(stride) != 2:
        raise ValueError(f"BroadcastResidual: stride must be a pair (frequency, time), not {stride!r}")
    over, along = (check.size(owner, "stride", step) for step in stride)
    if along != 1:
        raise ValueError(
            f"BroadcastResidual: stride over time must be 1, not {along}, since what it leaves is added to all times"
        )
    return over, along
