"""Equiangular basis: a classifier of fixed unit vectors, nearly at right angles."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate, full_precision
from normkit.weight.equiangular_basis_objective import EquiangularBasisObjective

CLOSE = 1e-4  # how far beyond the threshold the largest cosine may be in the end


@method(
    "equiangular-basis",
    paper="Equiangular Basis Vectors (Shen et al., 2023), arXiv 2303.11637",
    shape="N C",
    over="C",
    example={"num_classes": 6},
    invariant=("scale",),
    exempt={"moves weight": "the basis is fixed"},
)
class EquiangularBasis(Method):
    """Score classes by the cosine of the features with fixed vectors that are nearly orthogonal.

    For classifiers of many classes: nothing is learned behind the features, whose size may be below the number of
    classes. With n(z) = z / |z|,

        logits = n(x) n(weight)^T / temperature

    Trained with cross-entropy, label smoothing 0.1 in the paper.

    Args:
        in_features: d.
        num_classes: K.
        temperature: 0.07 for classification; 0.14 was tried for segmentation.

    State: the buffer ``weight`` (K, d): random directions, until :meth:`generate` makes them equiangular.

    Equiangular Basis Vectors (Shen, Sun, Wei, 2023), arXiv 2303.11637.

    Differs from the authors' code in: logits are divided by the temperature in evaluation too.
    """

    weight: Tensor

    def __init__(self, in_features: int, num_classes: int, *, temperature: float = 0.07):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)
        self.register_buffer("weight", F.normalize(torch.randn(num_classes, in_features)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., K) of ``x`` (..., d)."""
        check.features_last(self, x, self.in_features)
        basis = F.normalize(self.weight.to(accurate(x).dtype))
        with full_precision(x):
            cosines = F.linear(F.normalize(accurate(x), dim=-1), basis)
        return (cosines / self.temperature).to(x.dtype)

    @torch.no_grad()
    def generate(self, *, threshold: float = 0.002, steps: int = 100_000, lr: float = 1e-3) -> float:
        """Lower the absolute cosines until none exceeds ``threshold``, or ``steps`` are over; return the largest.

        From the vectors that are there, by gradient descent on ``equiangular-basis-objective``; of K <= d vectors an
        orthogonal set is taken at once. No K vectors have cosines below sqrt((K - d) / (d (K - 1))).
        """
        objective = EquiangularBasisObjective(threshold=threshold)
        check.size(self, "steps", steps)
        if self.num_classes <= self.in_features:
            self.weight.copy_(torch.linalg.qr(self.weight.double().mT).Q.mT)
            return self._largest()
        for _ in range(steps):
            self.weight.copy_(F.normalize(self.weight))
            if self._largest() <= objective.threshold + CLOSE:
                break
            with torch.enable_grad():
                moved = self.weight.clone().requires_grad_()
                (slope,) = torch.autograd.grad(objective(moved), moved)
            self.weight.sub_(lr * slope)
        self.weight.copy_(F.normalize(self.weight))
        return self._largest()

    def _largest(self) -> float:
        cosines = (self.weight @ self.weight.mT).abs()
        return float(cosines.fill_diagonal_(0).max())
