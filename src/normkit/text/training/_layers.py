"""What modules for text share: layers that take any floating-point type."""

from __future__ import annotations

from torch import Tensor, nn


def run(layer: nn.Linear | nn.Conv1d, x: Tensor) -> Tensor:
    """Call a layer on an input of another floating-point type: the layer computes in the type of its weight."""
    return layer(x.to(layer.weight.dtype))
