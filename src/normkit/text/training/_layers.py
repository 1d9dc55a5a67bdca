"""What modules for text share: layers that take any floating-point type."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def run(layer: Any, x: Tensor) -> Tensor:
    """Call a layer on an input of another floating-point type: the layer computes in the type of its weight."""
    return layer(x.to(layer.weight.dtype))
