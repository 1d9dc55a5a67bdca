"""KIVI: keys quantized by channel, values by token, the latest tokens left as they are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

NAME = "kivi"


class Cache(NamedTuple):
    """Keys and values as they are read back."""

    keys: Tensor
    values: Tensor


@method(
    NAME,
    paper="KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache (Liu et al., 2024), arXiv 2402.02750",
    shape="N H T C",
    over="T",
    inputs={"values": "N H T C"},
    example={"group_size": 2, "residual": 4},
    exempt={"gradcheck": "a cache carries no gradient"},
)
@torch.no_grad()
def kivi(keys: Tensor, values: Tensor, *, bits: int = 2, group_size: int = 32, residual: int = 128) -> Cache:
    """Round the keys of a prompt by channel and its values by token, all but the latest tokens, to few bits.

    For the cache of a long context: keys have channels of large numbers, which a scale for each token would spoil.

    A group with least lo and scale s = (max - lo) / (2^bits - 1) is read back as lo + s round((x - lo) / s). For keys a
    group is ``group_size`` successive tokens of one channel, of the first T - T mod residual tokens; for values
    ``group_size`` successive channels of one token, of the first T - residual. The others stay.

    Args:
        keys, values: (N, heads, T, D), behind the rotary embedding; D is a multiple of ``group_size``.
        bits: of a number.
        group_size: entries that share lo and s.
        residual: tokens that stay, a multiple of ``group_size``.

    KIVI (Liu et al., 2024), arXiv 2402.02750.

    Differs from the authors' code in: a group of equal numbers is kept, where theirs divides by 0; lo and s are not
    rounded to half precision.
    """
    check.size(NAME, "bits", bits, most=16), check.size(NAME, "group_size", group_size)
    check.size(NAME, "residual", residual)
    check.divides(NAME, "group_size", group_size, "residual", residual)
    check.floating(NAME, keys, "keys")
    check.shape(NAME, "keys", keys, (None,) * 4)
    check.values(NAME, "values", values, keys.shape, keys)
    check.divides(NAME, "group_size", group_size, "D", keys.shape[3])
    tokens = keys.shape[2]
    of_keys, of_values = tokens - tokens % residual, max(tokens - residual, 0)
    early = _round(keys[:, :, :of_keys].mT, bits, group_size).mT
    return Cache(
        torch.cat([early, keys[:, :, of_keys:]], 2),
        torch.cat([_round(values[:, :, :of_values], bits, group_size), values[:, :, of_values:]], 2),
    )


def _round(x: Tensor, bits: int, group_size: int) -> Tensor:
    """Round groups of successive entries of the last axis."""
    if not x.numel():
        return x
    groups = accurate(x).unflatten(-1, (-1, group_size))
    low, high = groups.aminmax(dim=-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1)
    codes = ((groups - low) / scale).clamp(0, 2**bits - 1).round()
    return (codes * scale + low).flatten(-2).to(x.dtype)
