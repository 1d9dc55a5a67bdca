"""Group normalization of padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import moments


@method(
    "masked-groupnorm",
    paper="Group Normalization (Wu, He, 2018), arXiv 1803.08494, with a mask as in transformers' PE Audio",
    evidence="library",
    shape="N C L",
    over="C/G L",
    inputs={"mask?": "N L : mask"},
    example={"groups": 2, "channels": lambda features: features},
    replaces=("groupnorm",),
    aliases=("PeAudioMaskedGroupNorm",),
    called={"transformers' PeAudioMaskedGroupNorm": "num_groups=groups num_channels=channels eps"},
    invariant=("shift", "scale"),
)
class MaskedGroupNorm(Norm):
    """Center groups of channels on their mean and divide them by their deviation, both over the valid steps.

    For padded sequences: what a sequence gives does not depend on its padding. Where steps come one by one, take
    ``cumulative-groupnorm``.

    Per sample and group of C / ``groups`` neighbouring channels, with mean and biased variance over its channels and
    valid steps,

        y = (weight * (x - mean) / sqrt(var + eps) + bias) * mask

    Invalid steps give zeros and get no gradient. A sample without any valid step gives zeros.

    Args:
        groups: number of groups, a divisor of C.
        channels: C.
        eps: added to the variance under the root.

    ``norm(x, mask)``: x (N, C, L), mask (N, L), 1 or True where valid; without a mask it is a group norm.

    Group Normalization (Wu, He, 2018), arXiv 1803.08494, with a mask as in transformers' PE Audio.

    Differs from transformers in: the mask is not repeated over the channels; no valid step gives zeros, not NaN.
    """

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5):
        super().__init__()
        self.groups = check.size(self, "groups", groups)
        self.channels = check.size(self, "channels", channels)
        check.divides(self, "groups", groups, "channels", channels)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize ``x`` over what ``mask`` leaves."""
        check.channels_first(self, x, self.channels, 3, 3)
        if mask is None:
            return ops.group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)
        check.flags(self, "mask", mask, (x.shape[0], x.shape[2]), x)
        valid = (mask != 0)[:, None, :]
        parts = torch.where(valid, x, 0).unflatten(1, (self.groups, -1))
        stats = moments(parts, (2, 3), mask=valid.unsqueeze(1))
        mean, var = (value[:, :, None, None] for value in (stats.mean, stats.var))
        n = ((parts - mean) * torch.rsqrt(var + self.eps)).flatten(1, 2)
        n = torch.where(valid, n, 0)  # without a valid step and with eps=0 it is NaN, and so were the weight's gradient
        return torch.where(valid, n * self.weight[:, None] + self.bias[:, None], 0).to(x.dtype)
