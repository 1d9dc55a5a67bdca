"""Norms of vectors by the kernels of normkit: C for processors, Triton for GPUs, torch's formula elsewhere."""

from . import layers
from .normkit.ops.row import Row, layer_norm, rms_norm, row_norm

__all__ = ["Row", "layer_norm", "layers", "rms_norm", "row_norm"]
