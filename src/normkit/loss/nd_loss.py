"""ND loss: distillation of the features' direction, with a push on their length."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate


@method(
    "nd-loss",
    paper="Improving Knowledge Distillation via Regularizing Feature Norm and Direction (Wang et al., 2023), "
    "arXiv 2305.17007",
    shape="N C",
    over="C",
    inputs={"teacher_features": "N C", "target": "N : index 3"},
    example={"num_classes": 3},
    exempt={"moves": "set_centers sets them"},
)
class NDLoss(Loss):
    """Turn the student's features to their class's center of the teacher, and lengthen those that are too short.

    For distilling a teacher on labelled data, where the student's features may be read, beside cross-entropy and a
    distillation loss. The centers are worked out once, from the teacher's features of the training set. With logits
    alone take ``nkd``.

    It reads the embeddings before the classifier. With e the direction of the center of the sample's class, s and t the
    features of student and teacher,

        loss_weight mean (1 - <s, e> / max(|s|, |t|))

    A student longer than the teacher is turned only; a shorter one gets the constant pull -e / |t|, which lengthens it.

    Args:
        num_features: of the teacher; project the student's to as many before the call.
        num_classes: how many centers there are.
        loss_weight: 2 or 4 in the authors' scripts.

    ``loss(features, teacher_features, target)``: (N, F), (N, F), classes int64 (N,). The teacher carries no gradient.
    State: ``centers`` (classes, F), zeros until :meth:`set_centers`; a center of zeros pulls nowhere.

    Improving Knowledge Distillation via Regularizing Feature Norm and Direction (Wang et al., 2023), arXiv 2305.17007.

    Differs from the authors' code in: a center of zeros, or two features of zeros, give no NaN.
    """

    centers: Tensor

    def __init__(self, num_features: int, num_classes: int, *, loss_weight: float = 1.0):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.loss_weight = check.number(self, "loss_weight", loss_weight)
        self.register_buffer("centers", torch.zeros(num_classes, num_features))

    @torch.no_grad()
    def set_centers(self, features: Tensor, labels: Tensor) -> None:
        """Let the centers be the means of the teacher's ``features`` (N, F) of each class, over the training set."""
        check.values(self, "features", features, (None, self.num_features), self.centers)
        check.index(self, "labels", labels, features.shape[:1], self.num_classes, self.centers)
        wide = accurate(features)
        total = wide.new_zeros(self.centers.shape).index_add(0, labels, wide)
        self.centers.copy_(total / labels.bincount(minlength=self.num_classes).clamp(min=1).unsqueeze(1))

    def forward(self, features: Tensor, teacher_features: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.features_last(self, features, self.num_features, "features")
        check.values(self, "features", features, (None, self.num_features), features)
        check.values(self, "teacher_features", teacher_features, features.shape, features)
        check.index(self, "target", target, features.shape[:1], self.num_classes, features)
        s, t = accurate(features), accurate(teacher_features).detach()
        center = accurate(self.centers)[target].to(s.dtype)
        length = center.norm(dim=1, keepdim=True)
        direction = center / torch.where(length > 0, length, 1)
        own, other = torch.linalg.vector_norm(s, dim=1), torch.linalg.vector_norm(t, dim=1)
        longest = torch.where(own >= other, own, other)  # of equal ones the student's, as torch's maximum would halve
        share = (s * direction).sum(1) / torch.where(longest > 0, longest, 1)
        return (self.loss_weight * (1 - share).mean()).to(features.dtype)
