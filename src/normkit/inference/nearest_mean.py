"""Nearest mean: a classifier of frozen features that learns class by class and forgets none."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import Fitted
from normkit.statistics import accurate


@method(
    "nearest-mean",
    paper="A Simple Baseline that Questions the Use of Pretrained-Models in Continual Learning (Janson et al., 2022), "
    "arXiv 2210.04428",
    shape="N C",
    over="N",
    inputs={"target": "N : index 3"},
    example={"num_classes": 3},
)
class NearestMean(Fitted):
    """Keep the mean feature of each class, and score a sample by how near it is to each.

    For classes that come one after another, over features of a net that is not trained: nothing is learned, so that
    nothing is forgotten, whatever the order.

        f = features / max(|features|, 1e-12),    score_c = - |f - mean_c|,    -inf for a class without samples

    The means of unit vectors are shorter than 1, the more so the looser the class; they stay so.

    Args:
        num_features: D.
        num_classes: C.
        normalize: divide features by their length; else f = features.

    ``update(features, target)`` with (N, D) and classes int64 (N,), as often as there is data; then
    ``nearest(features)``, (M, D), returns scores (M, C). ``fit`` begins anew, ``predict`` returns the nearest class,
    the first of equal ones. State: ``mean`` (C, D), ``count`` (C,).

    A Simple Baseline (Janson et al., 2022), arXiv 2210.04428.

    Differs from the authors' code in: a class may be updated more than once.
    """

    mean: Tensor
    count: Tensor

    def __init__(self, num_features: int, num_classes: int, *, normalize: bool = True):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.normalize = normalize
        self.register_buffer("mean", torch.zeros(num_classes, num_features))
        self.register_buffer("count", torch.zeros(num_classes))

    @torch.no_grad()
    def update(self, features: Tensor, target: Tensor) -> NearestMean:
        """Take in features (N, D) of classes int64 (N,)."""
        f = self._read(features)
        check.index(self, "target", target, features.shape[:1], self.num_classes, features)
        member = F.one_hot(target, self.num_classes).to(f.dtype)
        count = self.count + member.sum(0)
        # the sum of what the new samples are off the old mean: order changes nothing but the last digit
        total = member.mT @ f - member.sum(0).unsqueeze(1) * self.mean
        self.mean += (total / count.clamp(min=1).unsqueeze(1)).to(self.mean.dtype)
        self.count.copy_(count)
        return self

    def fit(self, features: Tensor, target: Tensor) -> NearestMean:
        """Forget what was seen, and take in features (N, D) of classes int64 (N,)."""
        self._read(features)
        check.index(self, "target", target, features.shape[:1], self.num_classes, features)
        self.mean.zero_()
        self.count.zero_()
        return self.update(features, target)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores (M, C) of features (M, D)."""
        f, mean = self._read(features), accurate(self.mean)
        apart = torch.cdist(f.to(mean.dtype), mean, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.where(self.count > 0, -apart, -torch.inf).to(features.dtype)

    def predict(self, features: Tensor) -> Tensor:
        """Return the nearest class, int64 (M,)."""
        return self(features).argmax(1)

    def _read(self, features: Tensor) -> Tensor:
        wide = scores(self, "features", features, (None, self.num_features), self.mean)
        return F.normalize(wide, dim=1, eps=1e-12) if self.normalize else wide
