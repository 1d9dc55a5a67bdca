"""The d-simplex classifier: fixed class vectors, as far apart as they can be."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "simplex-classifier",
    paper="Regular Polytope Networks (Pernici et al., 2021), arXiv 2103.15632; Stationary Representations (Biondi et "
    "al., 2024), arXiv 2405.02581",
    shape="N C-1",
    over="",
    exempt={"moves weight": "the simplex is fixed"},
)
class SimplexClassifier(Method):
    """Score classes by the product of the features with the corners of a regular simplex.

    For features that stay comparable when a model is trained anew or learns further classes: the class vectors never
    move, and may be laid out for classes that are not known yet. With fewer than ``num_classes - 1`` features take
    ``equiangular-basis``.

    With K - 1 features, rows of length 1, and a cosine of -1 / (K - 1) between any two,

        logits = x weight^T

    Args:
        num_classes: K.

    State: the buffer ``weight`` (K, K - 1), of one certain orientation. :func:`hoc_loss` is the companion loss for
    features compatible with an old model's.

    Regular Polytope Networks (Pernici et al., 2021), arXiv 2103.15632; Stationary Representations (Biondi et al.,
    2024), arXiv 2405.02581.
    """

    weight: Tensor

    def __init__(self, num_classes: int):
        super().__init__()
        self.num_classes = check.size(self, "num_classes", num_classes, least=2)
        check.size(self, "num_classes", num_classes, most=2**15)  # a square of floats is 4 GiB by then
        self.register_buffer("weight", simplex(num_classes).to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (..., K) of ``x`` (..., K - 1)."""
        check.features_last(self, x, self.num_classes - 1)
        return F.linear(x, self.weight.to(x.dtype)).to(x.dtype)


def simplex(classes: int) -> Tensor:
    """Return the corners (classes, classes - 1) of a regular simplex around 0, in float64."""
    n = classes - 1
    last = torch.full((1, n), (1 - math.sqrt(1 + n)) / n, dtype=torch.float64)
    corners = torch.cat([torch.eye(n, dtype=torch.float64), last])
    corners = corners - corners.mean(0)
    return corners / (torch.linalg.vector_norm(corners, dim=1, keepdim=True) + 1e-8)


def hoc_loss(features: Tensor, old: Tensor, target: Tensor, mu: float = 10.0) -> Tensor:
    """Return the authors' loss that pulls a sample's new features to its old ones, and away from other classes' new.

    ``features`` and ``old`` are (N, d), of length 1; add 0.1 times this to the cross-entropy of the classifier. Pairs
    of one class count as similarity 0.
    """
    check.values("hoc_loss", "features", features, (None, None), features)
    check.values("hoc_loss", "old", old, features.shape, features)
    check.shape("hoc_loss", "target", target, features.shape[:1], features)
    mu = check.number("hoc_loss", "mu", mu)
    scores = mu * accurate(old) @ accurate(features).mT
    others = scores.masked_fill(target.unsqueeze(0) == target.unsqueeze(1), 0)
    return (torch.logsumexp(others, 1) - scores.diagonal()).mean().to(features.dtype)
