"""What it takes to put keys and values into few bits and back, beside groups of four bits in plain PyTorch.

``--sizes`` is heads x tokens x features of a chunk.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

from normkit.bench import cases, goals, timing
from normkit.bench.goals import COLUMNS
from normkit.surgery.quantizing import caching

__all__ = ["COLUMNS", "LEGEND", "TAKES", "measure"]

TAKES = ("sizes",)
SIZES = [(8, 64, 64), (32, 64, 128), (32, 512, 128)]
PLAIN, OURS = "groups of 64 in 4 bits", "nsnquant in 2 bits"
LEGEND = {
    "size": "heads, tokens, features of what is encoded and decoded",
    "groups of 64 in 4 bits": "in plain PyTorch: torchao, as of 0.18, has no cache of keys and values",
    "error": "mean squared error over the mean square, of normal numbers; that of the other is in the file",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race encoding and decoding."""
    rows: list[goals.Row] = []
    for size in cases.sizes(options.sizes) if options.sizes else SIZES:
        x = torch.randn(1, *size, generator=torch.Generator().manual_seed(0))
        ours, plain = (lambda x=x: caching.decode(caching.encode(x), x.dtype)), (lambda x=x: in_groups(x))
        timings = goals.rows({PLAIN: plain, OURS: ours}, PLAIN, "x".join(map(str, size)), None, options.repeats, clock)
        rows += [{**row, "error": error(ours(), x), "error_beside": error(plain(), x)} for row in timings]
    return {"rows": rows, "failed": {}}


def in_groups(x: Tensor, group: int = 64, bits: int = 4) -> Tensor:
    """Round each group of numbers to a grid from its least to its largest, two codes a byte, and turn that back."""
    parts = x.reshape(-1, min(group, x.shape[-1]))
    low, high = parts.aminmax(dim=1, keepdim=True)
    scale = (high - low).clamp(min=1e-8) / (2**bits - 1)
    codes = ((parts - low) / scale).round_().to(torch.uint8)
    stored = codes[:, ::2] | codes[:, 1::2] << bits
    again = torch.stack([stored & (2**bits - 1), stored >> bits], -1).flatten(1)
    return (again * scale + low).reshape(x.shape)


def error(y: Tensor, x: Tensor) -> float:
    """Return the mean squared error over the mean square.

    >>> round(error(torch.tensor([1.1, 2.2]), torch.tensor([1.0, 2.0])), 6)
    0.01
    """
    return float((y - x).square().mean() / x.square().mean())
