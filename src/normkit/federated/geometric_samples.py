"""GGEUR's samples: features drawn around a client's own, in the shape that all clients' have together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import finite
from normkit.ops.spectral import by_lapack

NAME = "geometric-samples"
LARGEST_JITTER = 1e6  # of the largest entry; a factorization that fails there is not saved by more


@method(
    NAME,
    paper="Geometric Knowledge-Guided Localized Global Distribution Alignment for Federated Learning (Ma et al., "
    "2025), arXiv 2503.06457",
    shape="N C",
    over="",
    inputs={"covariance": "C C", "noise": "N S C"},
    exempt={"gradcheck": "samples are data, and carry no gradient"},
)
@torch.no_grad()
def geometric_samples(
    features: Tensor,
    covariance: Tensor,
    noise: Tensor,
    *,
    scales: Sequence[float] | None = None,
    largest: bool = True,
    jitter: float = 1e-6,
) -> Tensor:
    """Draw samples around each feature vector with a covariance that came from all clients.

    For clients that lack samples of a class: a linear head is then trained on originals and samples.

        U diag(e) Uᵀ = covariance,    B Bᵀ = U diag(max(e, 0)) Uᵀ + jitter I,    sample = feature + B z

    Where the factorization fails jitter grows tenfold until it holds. All of it is done in float64.

    Args:
        features: (N, D).
        covariance: (D, D) of one class; see ``pooled-covariance``.
        noise: z (N, M, D), standard normal; the caller draws it.
        scales: factors of eigenvalues, the first for the most extreme one; those beyond D are not used.
        largest: whether they begin at the largest; the authors' code for several domains begins at the smallest.
        jitter: added to the diagonal.

    Returns samples (N, M, D).

    Geometric Knowledge-Guided Localized Global Distribution Alignment for Federated Learning (Ma et al., 2025),
    arXiv 2503.06457.
    """
    check.values(NAME, "features", features, (None, None), features)
    rows, size = features.shape
    check.values(NAME, "covariance", covariance, (size, size), features)
    check.values(NAME, "noise", noise, (rows, None, size), features)
    for name, value in (("features", features), ("covariance", covariance), ("noise", noise)):
        finite(NAME, name, value)
    jitter = check.number(NAME, "jitter", jitter, 0.0, open_low=True)
    wide = covariance.double()
    values, vectors = by_lapack(torch.linalg.eigh, (wide + wide.mT) / 2)
    values = (values * _factors(() if scales is None else scales, values, largest)).clamp(min=0)
    factor = _factor((vectors * values) @ vectors.mT, jitter)
    return (features.double().unsqueeze(1) + noise.double() @ factor.mT).to(features.dtype)


def _factors(scales: Sequence[float], values: Tensor, largest: bool) -> Tensor:
    """A factor for each of the ascending eigenvalues."""
    given = check.numbers(NAME, "scales", scales, 0.0)[: len(values)]
    factors = values.new_tensor(given + [1.0] * (len(values) - len(given)))
    return factors.flip(0) if largest else factors


def _factor(matrix: Tensor, jitter: float) -> Tensor:
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    most = LARGEST_JITTER * max(1.0, float(matrix.abs().max()) if matrix.numel() else 0.0)
    while True:
        factor, failed = torch.linalg.cholesky_ex(matrix + jitter * eye)
        if not failed:
            return factor
        jitter *= 10
        if jitter > most:
            raise ValueError(f"{NAME}: covariance cannot be factorized, not even with {jitter} on its diagonal")
