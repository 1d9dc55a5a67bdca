"""Batches of positive definite matrices moved to a learned mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit.catalog import method
from normkit.manifold import _symmetric
from normkit.manifold._definite import EXEMPT, DefiniteNorm, geodesic
from normkit.statistics import full_precision


@method(
    "riemannian-batchnorm",
    paper="Riemannian batch normalization for SPD neural networks (Brooks et al., 2019), arXiv 1909.02414",
    shape="N C C : definite",
    over="N",
    exempt=EXEMPT | {"spread": "it moves a batch and leaves its variance; liebn and gbw-batchnorm have one"},
)
class RiemannianBatchNorm(DefiniteNorm):
    """Move a batch of positive definite matrices along the manifold, from its affine-invariant mean to a learned one.

    For covariance matrices in networks such as SPDNet, where subtracting a mean would leave the manifold. ``liebn`` has
    other group structures, and ``gbw-batchnorm`` suits ill-conditioned matrices.

    With m one Karcher step from the arithmetic mean m0, and symmetric roots,

        m = m0^(1/2) exp(mean log(m0^(-1/2) x m0^(-1/2))) m0^(1/2)
        y = weight^(1/2) m^(-1/2) x m^(-1/2) weight^(1/2)

    The variance is left as it is: ``liebn`` and ``gbw-batchnorm`` have one. The mean is a constant for the gradient.

    Args:
        n: size of the matrices.
        momentum: how far the running mean goes along the geodesic to the batch's.
        sync: take the mean over all processes.
        process_group: the processes to join, default all.

    Input and output (N, n, n), or (N, h, n, n), of which all N h count alike. State: ``weight`` and ``running_mean``
    (n, n), identities at the start. Another matrix than a positive definite one is refused.

    Riemannian batch normalization for SPD neural networks (Brooks et al., 2019), arXiv 1909.02414.

    Differs from the authors' code in: the gradient at equal eigenvalues is the limit, with its off-diagonal part; an
    eigenvalue below the rounding error of the largest counts as that error, where theirs returns infinities.
    """

    running_mean: Tensor

    def __init__(self, n: int, *, momentum: float = 0.1, sync: bool = False, process_group=None):
        super().__init__(n, momentum, sync, process_group)
        self.weight = nn.Parameter(torch.eye(n))
        self.keep(running_mean=torch.eye(n))

    def forward(self, x: Tensor) -> Tensor:
        """Move ``x``; in training by its own mean, which moves the running one."""
        wide = self._matrices(x)
        floor = _symmetric.rounding(wide.dtype)
        with full_precision(x):
            if x.device.type != "mps":  # what two congruences leave of 24 bits is too few
                wide = wide.double()
            mean = self._batch_mean(wide.detach().flatten(0, -3), floor) if self.training else self.running_mean
            back = _symmetric.rsqrt(_symmetric.symmetric(mean.to(wide.dtype)), floor)
            root = _symmetric.sqrt(_symmetric.symmetric(self.weight.to(wide.dtype)))
            moved = root @ back
            return _symmetric.symmetric(moved @ wide @ moved.mT).to(x.dtype)

    @torch.no_grad()
    def _batch_mean(self, points: Tensor, floor: _symmetric.Real) -> Tensor:
        start, count = self._mean_and_count(points)
        mean = self._karcher(points, start, floor)
        self._follow(count, mean, geodesic(floor))
        return mean
