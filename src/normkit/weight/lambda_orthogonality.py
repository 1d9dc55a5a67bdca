"""Lambda-orthogonality: a map between embeddings that may leave the rotations, but only so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate
from normkit.weight._gram import distance
from normkit.weight._penalty import Penalty


@method(
    "lambda-orthogonality",
    paper="lambda-Orthogonality Regularization for Compatible Representation Learning (Ricci et al., 2025), "
    "arXiv 2509.16664",
    evidence="abstract",
    shape="C I",
    over="C I",
    example={"threshold": 0.5},
    provenance="a reconstruction from the abstract: neither the authors' code nor the paper's equations could be had",
)
class LambdaOrthogonality(Penalty):
    """Penalize a map's distance from orthogonality where it exceeds a threshold.

    For a linear map from an old model's embeddings to a new one's: an orthogonal map keeps the geometry and cannot
    adapt, a free one adapts and destroys it. With f = |W^T W - I| (W W^T for a wide W),

        f where f > threshold, else 0,      or with a sharpness k      sigmoid(k (f - threshold)) f

    Args:
        threshold: the lambda of the name; 0 asks for an orthogonal map, infinity for nothing.
        sharpness: k; None: a hard threshold.

    lambda-Orthogonality Regularization for Compatible Representation Learning (Ricci et al., 2025), arXiv 2509.16664.
    Both forms are reconstructed and have not been compared with the authors'.
    """

    def __init__(self, *, threshold: float, sharpness: float | None = None):
        super().__init__()
        self.threshold = check.number(self, "threshold", threshold, 0.0)
        self.sharpness = None if sharpness is None else check.number(self, "sharpness", sharpness, 0.0, open_low=True)

    @classmethod
    def misfit(cls, value: Tensor, options: Mapping[str, Any]) -> str:
        """Why a tensor gets no loss, or an empty string."""
        return "" if value.dim() == 2 else "no matrix"

    def forward(self, weight: Tensor) -> Tensor:
        """Return the loss of a matrix, a single number."""
        check.values(self, "weight", weight, (None, None), weight)
        far = distance(accurate(weight)).clamp(min=1e-12).sqrt()
        if self.sharpness is None:
            return torch.where(far > self.threshold, far, 0).to(weight.dtype)
        return (torch.sigmoid(self.sharpness * (far - self.threshold)) * far).to(weight.dtype)
