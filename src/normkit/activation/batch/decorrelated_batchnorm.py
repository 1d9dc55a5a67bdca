"""Decorrelated batch normalization: ZCA whitening."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.activation.batch._whitening import Whitening
from normkit.catalog import method


@method(
    "decorrelated-batchnorm",
    paper="Decorrelated Batch Normalization (Huang et al., 2018), arXiv 1804.08450",
    evidence="equations",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    aliases=("dbn", "decorrelated-bn", "zca-whitening"),
    invariant=("shift",),
    provenance="equations in float64 in tests/activation/test_batch_neighbours.py",
)
class DecorrelatedBatchNorm(Whitening):
    """Center the channels on the batch's mean and turn and scale each group of them so that its covariance is one.

    For convolutional networks, in the place of batch norm: channels of a group have no correlation any more. Over all
    values of batch and space, with S the biased covariance of a group's channels,

        y = weight * (S + eps I)^(-1/2) (x - mean) + bias

    The symmetric root (ZCA) leaves the channels as near to themselves as whitening can. Evaluation uses the running
    mean and the running root, not the root of a running covariance.

    Args:
        num_features: C, the number of channels.
        num_groups: whitened apart; the cost grows with the cube of C / num_groups, and each group needs many more
            values than channels.
        eps: added to the diagonal of the covariance.
        momentum: share of the NEW batch in the running mean and root.
        affine: learn ``weight`` and ``bias``.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Decorrelated Batch Normalization (Huang, Yang, Lang, Deng, 2018), arXiv 1804.08450.

    Differs from the authors' code in: gradients are right where eigenvalues are equal, where theirs divides by zero.
    """

    matrix = "running_projection"

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 1,
        eps: float = 1e-3,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, num_groups, eps, momentum, affine, sync, process_group)

    def _inverse_root(self, covariance: Tensor) -> Tensor:
        return inverse_root(covariance)


def inverse_root(s: Tensor) -> Tensor:
    """S^(-1/2) of symmetric positive matrices, whose derivatives exist where eigenvalues are equal too.

    The value is that of the eigenvectors, which carry no gradient. Newton's method for W S W = 1, started at it, does
    not move it, but knows the derivatives: each step one order more.
    """
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(s.detach())
        roots = values.clamp(min=0).sqrt()
        start = vectors @ (vectors / roots.unsqueeze(-2)).mT
        between = 1 / (roots.unsqueeze(-1) + roots.unsqueeze(-2))
    w = start
    for _ in range(3):
        product = w @ s @ w
        rest = product.detach() - product
        w = w + vectors @ (between * (vectors.mT @ rest @ vectors)) @ vectors.mT
    return w
