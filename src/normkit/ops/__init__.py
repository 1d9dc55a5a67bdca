"""Pure functions: each one a formula in PyTorch, and the choice of a kernel that computes the same faster."""

from normkit.ops.eager import refusal
from normkit.ops.pointwise import derf, dyt, eln
from normkit.ops.row import Row, add_layer_norm, add_rms_norm, add_row_norm, layer_norm, rms_norm, row_norm

__all__ = [
    "Row",
    "add_layer_norm",
    "add_rms_norm",
    "add_row_norm",
    "derf",
    "dyt",
    "eln",
    "layer_norm",
    "refusal",
    "rms_norm",
    "row_norm",
]
