"""The covariance of a Gaussian process on a manifold, by eigenvectors of its Laplacian."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate, full_precision, reals

KINDS = ("matern", "squared-exponential")


@method(
    "manifold-kernel",
    paper="Implicit Gaussian process representation of vector fields over arbitrary latent manifolds (Peach et al., "
    "2024), ICLR, arXiv 2309.16746",
    shape="N C",
    over="",
    inputs={"y": "5 C", "eigenvalues": "C : unit", "count": " : unit"},
    exempt={
        "compile batches train": "torch compiles a graph twice that takes a single float64 number, not one of float32"
    },
)
class ManifoldKernel(Method):
    """Weigh the eigenvectors of a Laplacian by how slowly they change, and return the products of their rows.

    For Gaussian processes of functions or vector fields on a manifold that is known by points. With eigenvalues l_k, to
    which the smallest belong,

        "matern":               S_k = (l_k + 2 nu / kappa^2)^(-nu)
        "squared-exponential":  S_k = exp(-l_k kappa^2 / 2)
        out = x diag(sigma count S / sum S) yᵀ

    Args:
        kind: ``"matern"`` or ``"squared-exponential"``.
        nu: smoothness, of ``"matern"``.
        kappa: length.
        sigma: variance.

    ``kernel(x, y, eigenvalues, count)``: rows of eigenvectors (N, K) and (M, K), (K,), and how many rows there are in
    all, a tensor of one number. State: ``nu``, ``kappa`` and ``sigma``, learned.

    Implicit Gaussian process representation of vector fields (Peach et al., 2024), arXiv 2309.16746.
    """

    nu: Tensor
    kappa: Tensor
    sigma: Tensor

    def __init__(self, *, kind: str = "matern", nu: float = 3.0, kappa: float = 4.0, sigma: float = 1.0):
        super().__init__()
        self.form = check.choice(self, "kind", kind, KINDS)
        for name, value in (("nu", nu), ("kappa", kappa), ("sigma", sigma)):
            setattr(self, name, nn.Parameter(torch.tensor(check.number(self, name, value, 0.0, open_low=True))))

    def forward(self, x: Tensor, y: Tensor, eigenvalues: Tensor, count: Tensor) -> Tensor:
        """Return the covariances (N, M)."""
        rows = reals(self, "x", x, (None, None))
        others = reals(self, "y", y, (None, x.shape[1]), x)
        values = reals(self, "eigenvalues", eigenvalues, (x.shape[1],), x)
        many = reals(self, "count", count, (), x)
        nu, kappa, sigma = (accurate(value) for value in (self.nu, self.kappa, self.sigma))
        if self.form == "matern":
            logarithms = -nu * (values + 2 * nu / kappa.square()).log()
        else:
            logarithms = -0.5 * values * kappa.square()
        share = torch.softmax(logarithms, 0) * (many * sigma)
        weighted = (rows * share).to(rows.dtype)
        with full_precision(x):
            covariance = weighted @ others.to(rows.dtype).mT
        return covariance.to(x.dtype)
