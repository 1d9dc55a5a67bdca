"""Softmax attention to a window of the past, at a cost of length times window, not of the length's square."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.attention.core import softmax_attention

BLOCK = 64  # narrower blocks would leave the kernels little to do


class Past(NamedTuple):
    """Keys and values (N, heads, S, features), which are seen (N, heads, S, 1), and the tokens so far (N, 1)."""

    keys: Tensor
    values: Tensor
    shown: Tensor
    seen: Tensor


def extend(past: Past | None, k: Tensor, v: Tensor, shown: Tensor | None) -> Past:
    """The past and new tokens together; of these all are seen by default."""
    shown = k.new_ones(1, 1, 1, 1, dtype=torch.bool) if shown is None else shown
    shown = shown.expand(*k.shape[:3], 1)
    here = k.new_full((k.shape[0], 1), k.shape[2], dtype=torch.int64)
    if past is None:
        return Past(k, v, shown, here)
    k, v, shown = (torch.cat(pair, 2) for pair in zip((past.keys, past.values, past.shown), (k, v, shown), strict=True))
    return Past(k, v, shown, past.seen + here)


def unknown(length: int) -> bool:
    """Whether an exported program is to take any length, so that it can have no branch on it."""
    free = isinstance(length, torch.SymInt) or torch.compiler.is_dynamo_compiling()  # which shows numbers alone
    return torch.compiler.is_exporting() and free


def last(past: Past, count: int) -> Past:
    """The past of which only the last ``count`` keys will be seen."""
    if unknown(past.keys.shape[2]):
        return past
    start = max(past.keys.shape[2] - count, 0)
    k, v, shown = (x[:, :, start:] for x in (past.keys, past.values, past.shown))
    return Past(k, v, shown, past.seen)


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    shown: Tensor | None = None,
    *,
    scale: float | None = None,
    attend: Callable[..., Tensor] = softmax_attention,
) -> Tensor:
    """Let each query see the last ``window`` keys up to its own, itself included: t - window < j <= t.

    The last T of the keys are the queries' own; those before them are of an earlier past. ``shown`` (N, heads, S, 1) is
    False at keys that nobody sees. Tokens are cut into blocks of at least the window's width, so that a query's keys
    lie in its own block and the one before.
    """
    length, width = q.shape[2], max(window - 1, BLOCK)
    before = k.shape[2] - length
    if unknown(length):
        return attend(q, k, v, _also(within(window, length, before, q.device), shown), scale=scale)
    if window >= length and not before and shown is None and attend is softmax_attention:
        return softmax_attention(q, k, v, causal=True, scale=scale)
    first = min(width, length)
    keys = slice(before + first)
    seen = _also(within(window, first, before, q.device), None if shown is None else shown[:, :, keys])
    y = attend(q[:, :, :first], k[:, :, keys], v[:, :, keys], seen, scale=scale)
    if first == length:
        return y
    k, v = (_with_last(_blocks(x[:, :, before:], width)) for x in (k, v))
    shown = None if shown is None else _with_last(_blocks(shown[:, :, before:], width))
    seen = _also(within(window, width, width, q.device), shown)
    rest = attend(_blocks(q[:, :, first:], width), k, v, seen, scale=scale)
    return torch.cat([y, rest.flatten(1, 2)[:, : length - first].unflatten(0, q.shape[:2])], 2)


def within(window: int, queries: int, before: int, device: torch.device) -> Tensor:
    """Which of the keys, ``before`` of which come before the first query, each query sees."""
    lag = torch.arange(queries, device=device).unsqueeze(-1) + before - torch.arange(before + queries, device=device)
    return (lag >= 0) & (lag < window)


def _also(seen: Tensor, shown: Tensor | None) -> Tensor:
    return seen if shown is None else seen & shown.mT


def _blocks(x: Tensor, width: int) -> Tensor:
    """Fill up the tokens and cut them: (N * heads, blocks, width, features)."""
    blocks = -(-x.shape[2] // width)
    return F.pad(x, (0, 0, 0, blocks * width - x.shape[2])).unflatten(2, (blocks, width)).flatten(0, 1)


def _with_last(blocks: Tensor) -> Tensor:
    """Each block but the first, behind the one before it."""
    return torch.cat([blocks[:, :-1], blocks[:, 1:]], 2)
