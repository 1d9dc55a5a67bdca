"""Softmax attention to a window of the past, at a cost of length times window, not of the length's square."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.attention._core import softmax_attention

BLOCK = 128  # narrower blocks would leave the fused kernels little to do


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Let each query see the last ``window`` keys up to its own, itself included: t - window < j <= t.

    Queries and keys are as many. Tokens are cut into blocks of at least the window's width, so that a query's keys lie
    in its own block and the one before. With a mask, all scores are made.
    """
    length, width = q.shape[2], max(window, BLOCK)
    if window >= length:
        return softmax_attention(q, k, v, mask, causal=True, scale=scale)
    if mask is not None or width >= length:
        seen = _within(window, length, 0, q.device)
        return softmax_attention(q, k, v, seen if mask is None else seen & mask, scale=scale)
    blocks = -(-length // width)
    fill = (0, 0, 0, blocks * width - length)
    qb, kb, vb = (F.pad(x, fill).unflatten(2, (blocks, width)).flatten(0, 1) for x in (q, k, v))
    seen = _within(window, width, width, q.device)
    first = softmax_attention(qb[:, :1], kb[:, :1], vb[:, :1], seen[:, width:], scale=scale)
    rest = softmax_attention(qb[:, 1:], _with_last(kb), _with_last(vb), seen, scale=scale)
    return torch.cat([first, rest], 1).unflatten(0, q.shape[:2]).flatten(2, 3)[:, :, :length]


def _within(window: int, queries: int, before: int, device: torch.device) -> Tensor:
    """Which of the keys, ``before`` of which come before the first query, each query sees."""
    lag = torch.arange(queries, device=device).unsqueeze(-1) + before - torch.arange(before + queries, device=device)
    return (lag >= 0) & (lag < window)


def _with_last(blocks: Tensor) -> Tensor:
    """Each block but the first, behind the one before it."""
    return torch.cat([blocks[:, :-1], blocks[:, 1:]], 2)
