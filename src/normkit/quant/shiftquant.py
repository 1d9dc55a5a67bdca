"""ShiftQuant: channels put in groups whose scales are powers of two apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


class Codes(NamedTuple):
    """Whole numbers like x, the group of each channel (C,), and the scale of group 0; group n's is scale / 2^n."""

    codes: Tensor
    group: Tensor
    scale: Tensor


@method(
    "shiftquant",
    paper="Towards Accurate and Efficient Sub-8-Bit Integer Training (Guo et al., 2024), arXiv 2411.10948",
    evidence="abstract",
    shape="... C",
    over="...",
    provenance="the construction as far as abstract and outline of the paper tell it; no code is public",
    exempt={"gradcheck": "whole numbers of a step come out, and the gradient is that of the identity"},
)
class ShiftQuant(Method):
    """Round to few bits, each channel with one of a few scales that are powers of two apart.

    For gradients and activations in integer training, whose channels, the summed axis, differ in size by decades: a
    product over them rescales its partial sums by bit shifts, and no channel is moved in memory. With r_c the largest
    size in channel c, R the largest of all,

        n_c = min(floor(log2(R / r_c)), num_groups - 1),    s_c = R 2^-n_c / (2^(bits - 1) - 1)
        y = s_c round(x / s_c)

    No entry is clipped. A channel of zeros is in the last group.

    Args:
        dim: size of the last axis.
        bits: of a number.
        num_groups: how many scales.
        stochastic: round up with the probability of the rest, so that the mean is exact.

    Gradients pass as they are. ``codes(x)`` returns the whole numbers, the channels' groups and the first scale.

    Towards Accurate and Efficient Sub-8-Bit Integer Training (2024), arXiv 2411.10948.
    """

    def __init__(self, dim: int, *, bits: int = 4, num_groups: int = 4, stochastic: bool = False):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.bits = check.size(self, "bits", bits, least=2, most=16)
        self.num_groups = check.size(self, "num_groups", num_groups, most=64)
        self.stochastic = bool(stochastic)
        self.most = 2 ** (self.bits - 1) - 1

    def forward(self, x: Tensor) -> Tensor:
        """Round ``x``, whose last axis is the channels'."""
        codes, group, scale = self.codes(x)
        rounded = codes * (scale * torch.exp2(-group.to(codes.dtype)))
        return rounded.to(x.dtype) + (x - x.detach())

    @torch.no_grad()
    def codes(self, x: Tensor) -> Codes:
        """Return whole numbers, groups and the first scale, in the accurate type."""
        check.features_last(self, x, self.dim)
        wide = accurate(x.detach())
        sizes = wide.abs().reshape(-1, self.dim)
        sizes = torch.cat([sizes, sizes.new_zeros(1, self.dim)]).amax(0)  # an empty batch has a size of 0
        largest = sizes.amax()
        bounds = largest * torch.exp2(-torch.arange(1, self.num_groups, device=x.device, dtype=wide.dtype))
        group = (sizes.unsqueeze(1) <= bounds).sum(1)
        scale = largest / self.most
        steps = wide / torch.where(scale > 0, scale * torch.exp2(-group.to(wide.dtype)), 1)
        steps = torch.floor(steps + torch.rand_like(steps)) if self.stochastic else steps.round()
        return Codes(steps.clamp(-self.most, self.most), group, scale)
