"""The likelihood of samples that depend on each other: families, repeated measures, series."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import reals


@method(
    "dependent-data-likelihood",
    paper="Training Normalizing Flows from Dependent Data (Kirchler et al., 2022), arXiv 2209.14933",
    evidence="equations",
    shape="N C",
    over="N",
    inputs={"relatedness": "N N : correlation"},
    exempt={"processes": "every pair of the batch counts; join the batch before the call"},
    provenance="the paper's equations, the learned share of relatedness our own; no code of the authors",
)
class DependentDataLikelihood(Method):
    """Return the joint log density of latents whose samples are correlated as given.

    For data that come in families or series, where a likelihood of independent samples counts the same evidence twice.
    Add the flow's log-determinants for the likelihood of the data; its samples and single densities stay as they are.

        C = s relatedness + (1 - s) I,  s = sigmoid(mixing)
        log p = - sum_d z_d^T C^-1 z_d / 2 - D/2 log |C| - N D / 2 log 2 pi

    Args:
        dim: D.

    ``log_prob(z, relatedness)``, which a call is too: latents (N, D), and a correlation matrix of the samples (N, N),
    of which the symmetric part counts; a single number. Batches must hold whole blocks of related samples. State:
    ``mixing`` (1,), 0 at first, which is even shares.

    Training Normalizing Flows from Dependent Data (Kirchler et al., 2022), arXiv 2209.14933.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.mixing = nn.Parameter(torch.zeros(1))

    def forward(self, z: Tensor, relatedness: Tensor) -> Tensor:
        """Return the joint log density of latents (N, D), a single number."""
        wide = reals(self, "z", z, (None, self.dim))
        n = len(z)
        related = reals(self, "relatedness", relatedness, (n, n), z).to(wide.dtype)
        share = torch.sigmoid(self.mixing.to(wide.dtype))
        matrix = share * (related + related.mT) / 2 + (1 - share) * torch.eye(n, dtype=wide.dtype, device=z.device)
        factor, info = torch.linalg.cholesky_ex(matrix)
        self._refuse(matrix, info)
        whitened = torch.linalg.solve_triangular(factor, wide, upper=False)
        log_det = 2 * factor.diagonal().log().sum()
        return (-(whitened.square().sum() + self.dim * (log_det + n * math.log(2 * math.pi))) / 2).to(z.dtype)

    def log_prob(self, z: Tensor, relatedness: Tensor) -> Tensor:
        """Return the joint log density of latents (N, D), a single number."""
        return self(z, relatedness)

    def _refuse(self, matrix: Tensor, info: Tensor) -> None:
        """Require a matrix that is positive definite; not read where a compiler or a transform is at work."""
        if not check.readable(matrix):
            return
        if info.item():
            least = torch.linalg.eigvalsh(matrix.detach()).min().item()
            raise ValueError(
                f"{type(self).__name__}: relatedness must be a correlation matrix, but mixed with independence its "
                f"smallest eigenvalue is {least:.3g}"
            )
