"""ConR: features of a regression pulled together where labels are near, and pushed apart where only predictions are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, full_precision

CONSTANT = "labels, predictions and weights are constants"
VARIANTS = ("exponential", "dense")


@method(
    "conr",
    paper="ConR: Contrastive Regularizer for Deep Imbalanced Regression (Keramati et al., 2024), arXiv 2309.06651",
    shape="N +",
    over="N *",
    inputs={"target": "N 1", "prediction": "N 1", "weights?": "N 1 : unit"},
    example={"window": 1.2},
    invariant=("scale",),
    exempt={
        "gradcheck": CONSTANT,
        "higher-derivatives": CONSTANT,
        "processes": "every pair of the batch counts; join the batch before the call",
    },
)
class ConR(Loss):
    """Push apart the features of samples that are predicted alike though their labels are far from each other.

    For a regression whose labels are uneven, such as ages, beside its loss: rare labels are confused with frequent ones
    near to them in feature space. ``window`` must say which labels count as near. For rare classes take
    ``per-class-gradient-normalization``.

    Let s be the cosines of features over the temperature, and dy how far labels are apart. Positives P are others
    whose labels differ by at most the window. Negatives N have labels that differ by more, but predictions that do not.
    Then

        S_ij = w_i exp(eta dy_ij),    D_i = sum_j exp(s_ij P_ij) + sum_j S_ij N_ij exp(s_ij)
        loss = mean_i w_i / |P_i| sum_P (log D_i - s_ij)                  over rows with negatives, the others give 0

    The first sum of D runs over all j: each that is no positive adds 1. ``"dense"``, for maps of depth, first averages
    labels, predictions and weights of a sample. It has S = w eta dy, counts the sample itself in |P| and has no w
    before the sum. A row without positives gives 0.

    Args:
        window: how far labels, and predictions, may be apart to count as near.
        temperature: what cosines are divided by.
        eta: how much the distance of labels pushes.
        variant: ``"exponential"`` for a number a sample, ``"dense"`` for a map.

    ``loss(features, target, prediction, weights=None)``: (N, ...), and (N, 1) or (N,) each, of ``"dense"`` (N, ...).
    Only features carry a gradient. The authors stack two augmentations, so that every row has a positive.

    ConR (Keramati et al., 2024), arXiv 2309.06651.

    Differs from the authors' code in: a row without positives gives 0, not NaN; labels (N,) are not broadcast to zeros.
    """

    def __init__(self, window: float = 1.0, temperature: float = 0.07, eta: float = 0.01, variant: str = "exponential"):
        super().__init__()
        self.window = check.number(self, "window", window, 0.0)
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)
        self.eta = check.number(self, "eta", eta)
        self.variant = check.choice(self, "variant", variant, VARIANTS)

    def forward(self, features: Tensor, target: Tensor, prediction: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss, a single number."""
        check.floating(self, features, "features")
        if features.dim() < 2:
            raise ValueError(f"ConR: features must have shape (N, ...), but their shape is {tuple(features.shape)}")
        wide = accurate(features)
        y = self._column("target", target, features)
        distance = (y - y.T).abs()
        p = self._column("prediction", prediction, features, target)
        w = torch.ones_like(y) if weights is None else self._column("weights", weights, features, target)
        near = distance <= self.window
        itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
        positive, negative = near & ~itself, ~near & ((p - p.T).abs() <= self.window)
        rows = F.normalize(wide.flatten(1), dim=1)
        with full_precision(rows):
            products = rows @ rows.T
        rows = self._rows(products / self.temperature, positive, negative, self._push(distance, w))
        rows = torch.where(negative.any(1), rows, 0)
        weighted = rows if self.variant == "dense" else w.squeeze(1) * rows
        return weighted.mean().to(features.dtype)

    def _column(self, name: str, value: Tensor, features: Tensor, like: Tensor | None = None) -> Tensor:
        """Return a number a sample (N, 1), without a gradient."""
        check.floating(self, value, name)
        rest = tuple(value.shape[1:] if like is None else like.shape[1:])
        if self.variant == "exponential":
            rest = (1,)[: max(value.dim() - 1, 0)]
        check.shape(self, name, value, (len(features), *rest), features)
        wide = accurate(value.detach()).to(accurate(features).dtype)
        return wide.unsqueeze(1).flatten(1).mean(1, keepdim=True)

    def _push(self, distance: Tensor, w: Tensor) -> Tensor:
        """The logarithm of S (N, N)."""
        if self.variant == "dense":
            return (w * self.eta * distance).log()
        return w.log() + self.eta * distance

    def _rows(self, s: Tensor, positive: Tensor, negative: Tensor, push: Tensor) -> Tensor:
        """What each row gives (N,)."""
        pushed = torch.where(negative, s + torch.where(negative, push, 0), -torch.inf)
        below = torch.logsumexp(torch.cat([torch.where(positive, s, 0), pushed], 1), 1, keepdim=True)
        count = positive.sum(1) + (1 if self.variant == "dense" else 0)
        return torch.where(positive, below - s, 0).sum(1) / count.clamp(min=1)
