"""How far a measured rotation is from that between two others."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.manifold import _rotation
from normkit.manifold._points import have_full_rank
from normkit.statistics import full_precision, reals

SCALE = 1e8  # keeps covariances of directions near 1


@method(
    "rotation-residual",
    paper="Revisiting Rotation Averaging: Uncertainties and Robust Losses (Zhang et al., 2023), CVPR, arXiv 2303.05195",
    evidence="equations",
    shape="N 3",
    over="3",
    inputs={"rotation2": "N 3", "relative": "N 3", "covariance?": "N 3 3 : definite"},
)
def rotation_residual(
    rotation1: Tensor, rotation2: Tensor, relative: Tensor, covariance: Tensor | None = None
) -> Tensor:
    """Return the rotation vector that is left between two rotations and the measured one from the first to the second.

    For rotation averaging: the absolute rotations of cameras from relative ones, by least squares or a robust loss such
    as ``magsac-loss`` of the squared length. With R(.) the matrix of a rotation vector,

        e = vector of R(rotation2) R(rotation1)ᵀ R(relative)ᵀ,    its angle in [0, pi]

    With a covariance S of the measurement, Lᵀ e, L the lower factor of Cholesky of (1e8 S)⁻¹, whose squared length is
    that of Mahalanobis over 1e8.

    Args:
        rotation1, rotation2: rotation vectors, axis times angle, (N, 3).
        relative: the measured ones, (N, 3).
        covariance: of these, (N, 3, 3).

    Returns (N, 3). Revisiting Rotation Averaging (Zhang et al., 2023), arXiv 2303.05195.
    """
    owner = "rotation-residual"
    first = reals(owner, "rotation1", rotation1, (None, 3))
    second = reals(owner, "rotation2", rotation2, tuple(rotation1.shape), rotation1)
    measured = reals(owner, "relative", relative, tuple(rotation1.shape), rotation1)
    left = _rotation.times(_rotation.quaternion(second), _rotation.quaternion(-first))
    error = _rotation.vector(_rotation.times(left, _rotation.quaternion(-measured)))
    if covariance is not None:
        spread = reals(owner, "covariance", covariance, (len(rotation1), 3, 3), rotation1)
        spread = SCALE * (spread + spread.mT) / 2
        if check.readable(spread) and spread.numel():
            still = spread.detach()
            if not (still.isfinite().all() and have_full_rank(ops.eigvalsh(still))):
                raise ValueError(f"{owner}: covariance must hold positive definite matrices, but one is not")
        with full_precision(rotation1):
            factor = torch.linalg.cholesky(torch.linalg.inv(spread))
            error = (factor.mT @ error.unsqueeze(-1)).squeeze(-1)
    return error.to(rotation1.dtype)
