"""PHI-S: features rotated so that all have the same variance, and one number scales them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.hadamard import hadamard
from normkit.ops.sharded import Parts, part_of
from normkit.ops.spectral import by_lapack

METHODS = ("phi-s", "standard", "pca", "zca", "hadamard")


@method(
    "phi-s",
    paper="PHI-S: Distribution Balancing for Label-Free Multi-Teacher Distillation (Ranzinger, 2024), arXiv 2410.01680",
    shape="N C H W",
    over="",
    exempt={"moves": "fit sets the map"},
)
class PHIS(Norm):
    """Standardize features by a fixed linear map that was fitted beforehand, and back.

    For distillation from several teachers whose features differ in scale by orders of magnitude: the student learns the
    normalized features of each, and the map folds into its last linear layer. With the mean and the covariance
    S = U diag(e) Uᵀ of the fitted data and a Hadamard matrix H,

        y = matrix (x - mean),    x = inverse_matrix y + mean

    and ``matrix`` by ``method``, a² being the mean of e:

        phi-s       H Uᵀ / a                  every feature gets variance 1, one number scales all
        standard    diag(1 / sqrt(S_cc))      each feature on its own
        pca         diag(e)^(-1/2) Uᵀ         white, in the directions of the data
        zca         U diag(e)^(-1/2) Uᵀ       white, nearest to x
        hadamard    H diag(e)^(-1/2) Uᵀ       white, rotated

    ``"phi-s"`` divides by no single e. Where a direction has no variance, the three white ones are refused; where a
    feature has none, ``"standard"`` is. The eigenvalues ascend, and each eigenvector's largest entry is positive. Call
    :meth:`fit` once; before it the module is the identity. Training and evaluation are the same.

    Args:
        num_features: C.
        method: one of the five.
        sync: let :meth:`fit` join the data of the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(C,)``, ``(N, C)``, ``(N, T, C)`` or images ``(N, C, H, W)``.

    PHI-S: Distribution Balancing for Label-Free Multi-Teacher Distillation (Ranzinger et al., 2024), arXiv 2410.01680.

    Differs from the authors' code in: the signs of the eigenvectors, which theirs leaves to LAPACK; an order without a
    known Hadamard matrix is refused, where theirs takes a random rotation. Only PHI-S itself has published code, the
    other methods are the textbook's.
    """

    mean: Tensor
    matrix: Tensor
    inverse_matrix: Tensor

    def __init__(self, num_features: int, *, method: str = "phi-s", sync: bool = False, process_group=None):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.method = check.choice(self, "method", method, METHODS)
        self.sync, self.process_group = sync, process_group
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("matrix", torch.eye(num_features))
        self.register_buffer("inverse_matrix", torch.eye(num_features))

    @torch.no_grad()
    def fit(self, x: Tensor) -> PHIS:
        """Take mean and covariance of ``x`` (N, C), in float64, and set the state; return the module."""
        check.values(self, "x", x, (None, self.num_features), x)
        x = x.double()
        moments = statistics.moments(x, (0,), sync=self.sync, group=self.process_group)
        if moments.count < 2:
            raise ValueError(f"PHIS: fit needs at least two samples, not {int(moments.count)}")
        centered = x - moments.mean
        square = centered.T @ centered
        if self.sync:
            square = statistics.sum_over_processes(square, self.process_group)
        matrix, inverse = self._maps(square / (moments.count - 1))
        if not (matrix.isfinite().all() and inverse.isfinite().all()):
            raise ValueError(
                f"PHIS: x has directions without variance or NaN; method={self.method!r} divides by their variance; "
                "'phi-s' does not, if there is any variance at all"
            )
        for buffer, value in ((self.mean, moments.mean), (self.matrix, matrix), (self.inverse_matrix, inverse)):
            buffer.copy_(value)
        return self

    def _maps(self, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the matrix and its inverse."""
        if self.method == "standard":
            deviation = covariance.diagonal().sqrt()
            return torch.diag(1 / deviation), torch.diag(deviation)
        e, u = by_lapack(torch.linalg.eigh, covariance)
        largest = u.gather(0, u.abs().argmax(0, keepdim=True))
        u = u * largest.sign()
        # below this an eigenvalue is what rounding leaves of 0, of either sign
        e = torch.where(e > e.max() * len(e) * torch.finfo(e.dtype).eps, e, 0)
        spread = e.mean().expand_as(e).sqrt() if self.method == "phi-s" else e.sqrt()
        rotation = self._rotation(u)
        return (rotation / spread) @ u.T, (u * spread) @ rotation.T

    def _rotation(self, u: Tensor) -> Tensor:
        """What the data's own directions, divided by their deviations, are rotated by."""
        if self.method == "zca":
            return u
        return (torch.eye(len(u)) if self.method == "pca" else hadamard(len(u))).to(u)

    def forward(self, x: Tensor) -> Tensor:
        """Standardize ``x``."""
        exact, mean = self._accurate(x, "x")
        part = part_of(self, x)
        return _product(self.matrix, exact - mean).to(x.dtype) if part is None else part.joined(self._of_part(part))

    def _of_part(self, part: Parts) -> Tensor:
        exact, axis = statistics.accurate(part.local), 1 if part.whole.dim() == 4 else part.whole.dim() - 1
        mean, matrix = (part.kept(value).to(exact.dtype) for value in (self.mean, self.matrix))
        centered = exact - mean.narrow(0, part.begin[axis], exact.shape[axis]).view(-1, *[1] * (exact.dim() - 1 - axis))
        return part.own(part.product(matrix, centered, axis), axis).to(part.local.dtype)

    def inverse(self, y: Tensor) -> Tensor:
        """Bring standardized features back."""
        exact, mean = self._accurate(y, "y")
        return (_product(self.inverse_matrix, exact) + mean).to(y.dtype)

    def _accurate(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Check the input; return it in an accurate type, and the mean so that the two broadcast."""
        check.floating(self, x, name)
        images = x.dim() == 4
        if not 1 <= x.dim() <= 4 or x.shape[1 if images else -1] != self.num_features:
            raise ValueError(
                f"PHIS: {name} must end in {self.num_features} features, or be images (N, {self.num_features}, H, W), "
                f"but its shape is {tuple(x.shape)}"
            )
        exact = statistics.accurate(x)
        return exact, self.mean.to(exact.dtype).view((-1, 1, 1) if images else (-1,))


def _product(matrix: Tensor, x: Tensor) -> Tensor:
    matrix = matrix.to(x.dtype)
    with statistics.full_precision(x):
        return functional.conv2d(x, matrix[..., None, None]) if x.dim() == 4 else functional.linear(x, matrix)
