"""Nearest mean: a classifier of frozen features that learns class by class and forgets none."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import Fitted
from normkit.statistics import accurate, full_precision


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

    The means of unit vectors are shorter than 1, the more so the looser the class; they stay so. They are kept in
    float32 at least.

    Args:
        num_features: D; None: found by ``fit``.
        num_classes: C; None: found by ``fit``, one more than the largest class.
        normalize: divide features by their length; else f = features.

    ``update(features, target)`` with (N, D) and classes int64 (N,), as often as there is data; then
    ``nearest(features)``, (M, D), returns scores (M, C). ``fit`` begins anew, ``predict`` returns the nearest class,
    the first of equal ones. State: ``mean`` (C, D), ``count`` int64 (C,).

    A Simple Baseline (Janson et al., 2022), arXiv 2210.04428.

    Differs from the authors' code in: a class may be updated more than once.
    """

    mean: Tensor
    count: Tensor

    late = ("mean", "count")

    def __init__(self, num_features: int | None = None, num_classes: int | None = None, *, normalize: bool = True):
        super().__init__()
        self.num_features = None if num_features is None else check.size(self, "num_features", num_features)
        self.num_classes = None if num_classes is None else check.size(self, "num_classes", num_classes)
        self.normalize = normalize
        sizes = (0, 0) if num_classes is None or num_features is None else (num_classes, num_features)
        self.register_buffer("mean", accurate(torch.zeros(sizes)))
        self.register_buffer("count", torch.zeros(len(self.mean), dtype=torch.int64))

    def _apply(self, fn, recurse=True):
        """Cast or move; half precision would swallow the moves of the mean of many samples."""
        before = self.mean
        super()._apply(fn, recurse)
        if self.mean.dtype.itemsize < 4:
            self.mean = (self.mean if before.is_meta else before).to(self.mean.device, torch.float32)
        return self

    @property
    def n_features_in_(self) -> int:
        """D, as scikit-learn asks for it; none before it is known."""
        if not len(self.mean):
            raise AttributeError("n_features_in_ is known after fit")
        return self.mean.shape[1]

    @torch.no_grad()
    def update(self, features: Tensor, target: Tensor) -> NearestMean:
        """Take in features (N, D) of classes int64 (N,)."""
        f = self._read(features)
        check.index(self, "target", target, features.shape[:1], len(self.mean), features)
        member = F.one_hot(target, len(self.mean))
        self.count += member.sum(0)
        # the sum of what the new samples are off the old mean: order changes nothing but the last digit
        with full_precision(f):
            total = member.to(f.dtype).mT @ f - member.sum(0).unsqueeze(1) * self.mean
        self.mean += (total / self.count.clamp(min=1).unsqueeze(1)).to(self.mean.dtype)
        return self

    def fit(self, features: Tensor, target: Tensor) -> NearestMean:
        """Forget what was seen, and take in features (N, D) of classes int64 (N,)."""
        scores(self, "features", features, (None, self.num_features), self.mean)
        if features.isinf().any():
            raise ValueError("NearestMean: features has inf")
        rows, width = features.shape
        if not width or not (rows or self.num_classes):  # in scikit-learn's words
            raise ValueError(
                f"NearestMean: features has n_samples = {rows}, at least 1 is wanted, and {width} feature(s) "
                f"(shape=({rows}, {width})) while a minimum of 1 is required."
            )
        most = self.num_classes or int(target.max()) + 1
        check.index(self, "target", target, features.shape[:1], most, features)
        self.mean = self.mean.new_zeros(most, width)
        self.count = self.count.new_zeros(most)
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
        if not len(self.mean):
            raise self._unfitted()
        wide = scores(self, "features", features, (None, self.n_features_in_), self.mean)
        return F.normalize(wide, dim=1) if self.normalize else wide
