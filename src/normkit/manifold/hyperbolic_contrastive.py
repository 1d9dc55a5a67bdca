"""Two views of each sample drawn together in the ball of Poincaré."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.manifold._ball import Clamped
from normkit.statistics import full_precision, reals


@method(
    "hyperbolic-contrastive",
    paper="Hyperbolic Category Discovery (Liu et al., 2025), CVPR, arXiv 2504.06120",
    shape="2N C : ball",
    over="2N",
    inputs={"target?": "N : index 3"},
    example={"c": 0.5},
    exempt={"empty": "no sample has another view"},
)
class HyperbolicContrastive(Loss):
    """Raise the share of a sample's other view, or of its class, in the softmax over minus the distances to all others.

    For classes of which some are never labelled: with ``to-poincare`` before it, a loss by distance and one by angle,
    c = 0, weighted by lambda and 1 - lambda, lambda rising from 0 to 1. With s minus the hyperbolic distance, of
    c = 0 the cosine, over the temperature,

        loss = mean_i mean_p -log(exp s_ip / sum_{j != i} exp s_ij)

    over the other view p of i alone, or with a target over all p of the same class and both views.

    Args:
        c: minus the curvature; 0: cosines.
        temperature: 1 without labels and 0.07 with them in the authors' scripts.

    ``loss(features, target=None)``: (2B, D), all first views and then all second ones, and int64 (B,).

    Hyperbolic Category Discovery (Liu et al., 2025), arXiv 2504.06120.
    """

    def __init__(self, *, c: float, temperature: float = 1.0):
        super().__init__()
        self.c = check.number(self, "c", c, 0.0)
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)

    def forward(self, features: Tensor, target: Tensor | None = None) -> Tensor:
        """Return the loss, a single number."""
        x = reals(self, "features", features, (None, None))
        if x.shape[0] < 2 or x.shape[0] % 2:
            raise ValueError(
                "HyperbolicContrastive: features must hold two views of each sample, "
                f"but their shape is {tuple(x.shape)}"
            )
        half = x.shape[0] // 2
        if target is None:
            classes = torch.arange(half, device=x.device)
        else:
            check.shape(self, "target", target, (half,), features)
            if target.is_floating_point() or target.is_complex():
                raise TypeError(f"HyperbolicContrastive: target must be an int64 tensor, not {target.dtype}")
            classes = target
        return self._loss(x, torch.cat([classes, classes])).to(features.dtype)

    def _loss(self, x: Tensor, classes: Tensor) -> Tensor:
        itself = torch.eye(x.shape[0], dtype=torch.bool, device=x.device)
        same = ((classes == classes.unsqueeze(1)) & ~itself).to(x.dtype)
        logits = torch.where(itself, -torch.inf, self._similarity(x) / self.temperature)
        chance = torch.where(itself, 0, torch.log_softmax(logits, 1))
        return -((same * chance).sum(1) / same.sum(1)).mean()

    def _similarity(self, x: Tensor) -> Tensor:
        if self.c == 0:
            rows = F.normalize(x, dim=1)
            with full_precision(x):
                return rows @ rows.T
        return -Clamped.distances(x, x, self.c)
