"""Parameters on a straight line through the layers."""

from __future__ import annotations

from torch import Tensor

from normkit import check


def share_of(owner: object, layer: int, depth: int) -> float:
    """How far along the line a layer is, layer / depth."""
    check.size(owner, "depth", depth)
    check.size(owner, "layer", layer, least=0)
    if layer >= depth:
        raise ValueError(f"{type(owner).__name__}: layer={layer} must be below depth={depth}; layers count from 0")
    return layer / depth


def along(base: Tensor, slope: Tensor, share: float) -> Tensor:
    """Return base + share * slope."""
    return base + share * slope
