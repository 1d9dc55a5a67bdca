"""The sparse ETF classifier: a fixed simplex of class vectors with many zeros."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

DRAWS = 1000  # how often zeros are drawn until no class has lost all of its entries
EDGE = 0.99999  # an arccosine has no slope at 1


@method(
    "sparse-etf-classifier",
    paper="FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data (Xiao et al., 2024), "
    "arXiv 2401.08977",
    shape="N C",
    over="",
    example={"num_classes": 4, "steps": 5},
    exempt={"moves": "the classifier is fixed"},
)
class SparseETFClassifier(Method):
    """Score classes by the product of the features with fixed vectors, far apart, of one length, with many zeros.

    For federated learning with a long tail of classes: clients cannot pull the classifier apart, and zeros leave out
    features that are noise.

        logits = x weight^T + bias

    Features are not normalized.

    Args:
        in_features: d.
        num_classes: K, at most d.
        sparsity: the share of zeros in the whole weight.
        norm: length of the class vectors; the paper and an older script have 1.
        steps: of :meth:`generate`, which the weight begins with.

    State: the buffers ``weight`` (K, d) and ``bias`` (K,), zeros.

    FedLoGe (Xiao et al., 2024), arXiv 2401.08977.

    Differs from the authors' code in: the bias is 0, not the random one of a linear layer.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self, in_features: int, num_classes: int, *, sparsity: float = 0.6, norm: float = 0.1, steps: int = 10_000
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.num_classes = check.size(self, "num_classes", num_classes, least=2)
        self.sparsity = check.number(self, "sparsity", sparsity, 0.0, 1.0)
        self.norm = check.number(self, "norm", norm, 0.0, open_low=True)
        self.steps = check.size(self, "steps", steps, least=0, most=10**6)
        if num_classes > in_features:
            raise ValueError(
                f"{type(self).__name__}: num_classes={num_classes} must not exceed in_features={in_features}"
            )
        self.register_buffer("weight", torch.empty(num_classes, in_features))
        self.register_buffer("bias", torch.zeros(num_classes))
        if not self.weight.is_meta:
            self.weight.copy_(self.generate(steps))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., K) of ``x`` (..., d)."""
        check.features_last(self, x, self.in_features)
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype)).to(x.dtype)

    def etf(self, P: Tensor) -> Tensor:
        """Return the dense vectors (K, d) that an orthonormal ``P`` (d, K) turns a simplex into."""
        check.values(self, "P", P, (self.in_features, self.num_classes), P)
        centered = P - P.mean(1, keepdim=True)
        return math.sqrt(self.num_classes / (self.num_classes - 1)) * centered.mT

    def objective(self, weight: Tensor) -> Tensor:
        """Return what is lowered: lengths off ``norm``, less the mean angle to the nearest class.

        Zeros of ``weight`` get no gradient.
        """
        check.values(self, "weight", weight, (self.num_classes, self.in_features), weight)
        w = torch.where(weight != 0, accurate(weight), 0)
        length = torch.linalg.vector_norm(w, dim=1)
        directions = w / length.unsqueeze(1)
        own = torch.eye(len(w), dtype=torch.bool, device=w.device)
        nearest = (directions @ directions.mT).masked_fill(own, -1).amax(1).clamp(-EDGE, EDGE)
        return ((length - self.norm).square().sum() - torch.arccos(nearest).mean()).to(weight.dtype)

    @torch.no_grad()
    def generate(self, steps: int = 10_000, lr: float = 1e-4, generator: torch.Generator | None = None) -> Tensor:
        """Return a new weight: a dense simplex, zeros put in at random, and the rest brought apart by Adam."""
        shape, like = (self.in_features, self.num_classes), self.weight
        drawn = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
        dense = self.etf(torch.linalg.qr(accurate(drawn)).Q)
        weight = (dense * self._keep(dense, generator)).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=lr)
        for _ in range(steps):
            with torch.enable_grad():
                (weight.grad,) = torch.autograd.grad(self.objective(weight), weight)
            optimizer.step()
        return weight.detach().to(like.dtype)

    def _keep(self, dense: Tensor, generator: torch.Generator | None) -> Tensor:
        zeros = int(self.sparsity * dense.numel())
        for _ in range(DRAWS if dense.numel() - zeros >= self.num_classes else 0):
            order = torch.randperm(dense.numel(), generator=generator, device=dense.device)
            kept = torch.ones_like(dense).flatten().index_fill(0, order[:zeros], 0).view_as(dense)
            if kept.any(1).all():
                return kept
        raise ValueError(
            f"{type(self).__name__}: sparsity={self.sparsity} leaves a class of {self.num_classes} without any of "
            f"{self.in_features} features"
        )
