"""Iterative normalization: whitening by Newton's iterations."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.activation.batch._whitening import Whitening
from normkit.catalog import method


@method(
    "iternorm",
    paper="Iterative Normalization: Beyond Standardization towards Efficient Whitening (Huang et al., 2019), "
    "arXiv 1904.03441",
    evidence="equations",
    shape="N C *",
    over="N *",
    replaces=("batchnorm", "decorrelated-batchnorm"),
    aliases=("iterative-norm",),
    invariant=("shift",),
    provenance="equations of the authors' code in float64 in tests/activation/test_batch_neighbours.py",
)
class IterNorm(Whitening):
    """Center the channels and remove most of their correlations by a few Newton iterations on the covariance.

    For convolutional networks: whitening by matrix products alone, and with few iterations not all of it, which is
    less noisy than the whole. Per group of channels, with S their biased covariance plus eps I over its own trace,

        P_0 = I,    P_k = (3 P_{k-1} - P_{k-1}³ S) / 2,    y = weight * P_T (x - mean) / sqrt(trace) + bias

    Directions of large variance come out with variance 1, those of small variance with less, unless T is large.
    Evaluation uses the running mean and the running matrix.

    Args:
        num_features: C, the number of channels.
        num_groups: whitened apart.
        iterations: T.
        eps: added to the diagonal of the covariance.
        momentum: share of the NEW batch in the running mean and matrix.
        affine: learn ``weight`` and ``bias``.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Iterative Normalization: Beyond Standardization towards Efficient Whitening (Huang et al., 2019), arXiv 1904.03441.

    Differs from the authors' code in: groups that do not divide the channels are refused, not halved.
    """

    matrix = "running_wm"

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 1,
        iterations: int = 5,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, num_groups, eps, momentum, affine, sync, process_group)
        self.iterations = check.size(self, "iterations", iterations, 0, 1000)

    def _inverse_root(self, covariance: Tensor) -> Tensor:
        trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        scaled = covariance / trace
        p = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device).expand_as(covariance)
        for _ in range(self.iterations):
            p = 1.5 * p - 0.5 * (p @ p @ p) @ scaled
        return p * trace.rsqrt()
