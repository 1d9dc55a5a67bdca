"""Pure functions: each one a formula in PyTorch, and the choice of a kernel that computes the same faster."""

from normkit.ops import paths
from normkit.ops.channel import (
    affine,
    batch_norm,
    evonorm_s,
    filter_response_norm,
    global_response_norm,
    group_norm,
    instance_moments,
    instance_norm,
    layer_norm2d,
    mean_over_space,
    normalize_with,
    threshold,
)
from normkit.ops.eager import refusal
from normkit.ops.online import Control, online_norm
from normkit.ops.pointwise import derf, dyt, eln
from normkit.ops.polar import polar
from normkit.ops.rope import norm_rotate, rotate
from normkit.ops.row import Row, add_layer_norm, add_rms_norm, add_row_norm, layer_norm, rms_norm, row_norm
from normkit.ops.sinkhorn import sinkhorn
from normkit.ops.spectral import cholesky, eigh, eigvalsh, from_log_cholesky, log_cholesky, soundness, symmetric

__all__ = [
    "Control",
    "Row",
    "add_layer_norm",
    "add_rms_norm",
    "add_row_norm",
    "affine",
    "batch_norm",
    "cholesky",
    "derf",
    "dyt",
    "eigh",
    "eigvalsh",
    "eln",
    "evonorm_s",
    "filter_response_norm",
    "from_log_cholesky",
    "global_response_norm",
    "group_norm",
    "instance_moments",
    "instance_norm",
    "layer_norm",
    "layer_norm2d",
    "log_cholesky",
    "mean_over_space",
    "norm_rotate",
    "normalize_with",
    "online_norm",
    "paths",
    "polar",
    "refusal",
    "rms_norm",
    "rotate",
    "row_norm",
    "sinkhorn",
    "soundness",
    "symmetric",
    "threshold",
]
