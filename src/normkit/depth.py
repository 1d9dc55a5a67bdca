"""Where a layer stands in a network, and parameters on a straight line through its layers."""

from __future__ import annotations

from torch import Tensor

from normkit import check


def check_layer(owner: object, layer: int, depth: int) -> None:
    """Require the number of one of ``depth`` layers, from 0 on."""
    check.size(owner, "depth", depth)
    check.size(owner, "layer", layer, least=0)
    if layer >= depth:
        raise ValueError(f"{check.whose(owner)}: layer={layer} must be below depth={depth}; layers count from 0")


def share_of(owner: object, layer: int, depth: int) -> float:
    """Return how far along the line a layer is, layer / depth.

    >>> share_of("example", 1, 4)
    0.25
    """
    check_layer(owner, layer, depth)
    return layer / depth


def along(base: Tensor, slope: Tensor, share: float) -> Tensor:
    """Return base + share * slope."""
    return base + share * slope
