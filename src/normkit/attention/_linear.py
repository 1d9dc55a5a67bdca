"""What the linear-time cores share: a mask of keys, safe reciprocals, activations and the checks of one token."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check, statistics
from normkit.attention.core import AttentionCore

ACTIVATIONS = {
    "1+elu": lambda x: 1 + F.elu(x),
    "elu": F.elu,
    "relu": F.relu,
    "silu": F.silu,
    None: lambda x: x,
}


class LinearCore(AttentionCore):
    """A core that never forms the scores of all queries and keys, and so can hide a key from all queries only.

    ``mask`` is boolean and broadcasts to (N, heads, 1, S): True means that the key counts. Half-precision inputs are
    computed in float32, also under autocast: sums over thousands of tokens in bfloat16 would be none.
    """

    linear = True
    masks: ClassVar[str | None] = "keys"
    crossed = False


def grid(owner: object, size: Any) -> tuple[int, int]:
    """Return the height and width of a grid of tokens."""
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise TypeError(f"{type(owner).__name__}: size must be a pair (H, W), not {size!r}")
    return check.size(owner, "size", size[0]), check.size(owner, "size", size[1])


def hide(x: Tensor, seen: Tensor | None, value: float = 0) -> Tensor:
    """Replace what is not seen by ``value``, be it NaN, and send it no gradient."""
    return x if seen is None else torch.where(seen, x, value)


def count(seen: Tensor | None, like: Tensor) -> Tensor | int:
    """How many tokens of ``like`` (N, heads, S, d) are seen, at least 1, as (..., 1, 1)."""
    if seen is None:
        return max(like.shape[2], 1)
    return seen.sum(-2, keepdim=True).clamp(min=1).to(like.dtype)


def inverse(x: Tensor) -> Tensor:
    """1 / x, and 0 with a gradient of 0 where x is 0: of nothing seen nothing is given.

    >>> inverse(torch.tensor([0.0, 4.0]))
    tensor([0.0000, 0.2500])
    """
    mask = x != 0
    return torch.where(mask, 1 / torch.where(mask, x, 1), 0)


def accurate(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return each tensor in the type that sums are taken in: float32 for half precision."""
    return tuple(statistics.accurate(x) for x in tensors)
