"""What stands where a LayerNorm stood: the base of the norms of activations."""

from __future__ import annotations

from normkit.kinds.module import NORM, Method


class Norm(Method):
    """A module that takes activations and returns them normalized, in the same shape."""

    kind = NORM
