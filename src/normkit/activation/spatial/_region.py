"""Normalization of two regions, each by its own moments."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import statistics


def region_norm(x: Tensor, foreground: Tensor, *, eps: float, sync: bool = False, group=None) -> Tensor:
    """Normalize each channel of (N, C, H, W) apart inside and outside of ``foreground`` (N, 1, H, W), boolean.

    The moments are those of the whole batch. A region of S of the T values per channel is normalized as the authors'
    code does, (x - mean) / sqrt(var + eps T / S): the smaller the region, the larger eps.
    """
    regions = foreground, ~foreground
    both = statistics.moments_of_parts(x, (0, 2, 3), regions, sync=sync, group=group)
    total = both[0].count + both[1].count
    inside, outside = (_normalize(x, moments, total, eps) for moments in both)
    return torch.where(foreground, inside, outside)


def _normalize(x: Tensor, moments: statistics.Moments, total: Tensor, eps: float) -> Tensor:
    mean, var, count = moments
    share = count / total.clamp(min=1)
    spread = torch.where(count > 0, var * share + eps, 1)  # no values, nothing to divide
    return (x - mean[:, None, None]) * (share.sqrt() * spread.rsqrt())[:, None, None]
