"""Memory layouts."""

from __future__ import annotations

from torch import Tensor


def in_layout_of(x: Tensor, y: Tensor) -> Tensor:
    """Lay ``y`` (N, C, *space) out with its channels last where ``x`` has them so, else contiguously."""
    if x.dim() > 2 and x.stride(1) == 1 and x.shape[1] > 1:
        return y.movedim(1, -1).contiguous().movedim(-1, 1)
    return y.contiguous()
