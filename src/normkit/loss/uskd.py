"""USKD: a classifier that is its own teacher, by customized soft labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.loss._classes import soft, without
from normkit.statistics import accurate, full_precision


@method(
    "uskd",
    paper="From Knowledge Distillation to Self-Knowledge Distillation (Yang et al., 2023), arXiv 2303.13005",
    shape="N C",
    over="C",
    inputs={"logits": "N K", "target": "N : index K"},
    example={"num_classes": 4},
    exempt={"gradcheck": "the soft labels are constants, though they are made of the logits"},
)
class USKD(Loss):
    """Make soft labels of the classifier's own confidence and of a ranking of the wrong classes.

    For soft labels without a teacher, at the price of one weak linear classifier on a middle layer. A sample's label
    depends on its batch. With a teacher at hand take ``nkd``; for calibration, with a table of all samples, ``ps-kd``.

    With p the softmax of the logits, K the right class, or the two largest of soft labels, and v their share,

        loss_t    - mean sum_K q log p,                  q = p² + v - mean of p² over the batch, 0 where v is
        loss_weak - mu mean sum_c smoothed_c log softmax(weak)_c,   smoothed = 0.9 target + 0.1 / C
        loss_non  - mean sum z log softmax(logits without K),       z ~ 1 / (rank + 1), Zipf's law

    and the result is alpha loss_t + beta loss_non + loss_weak. Classes rank by s = softmax(weak) / (1 - sum_K + 1e-6)
    + l / (1 - sum_K l + 1e-6) with l the log-softmax of the logits, as the authors' code has it. A sample alone in
    its batch has q = v. Soft labels, q and z carry no gradient; features, weight and bias have theirs from loss_weak
    alone.

    Args:
        in_features: of the middle layer.
        num_classes: C.
        alpha, beta, mu: weights of the parts.

    ``loss(features, logits, target)``: (N, F), (N, C), and classes int64 (N,) or soft labels (N, C), of mixed images,
    of which the two largest count. State: ``weight`` (C, F) and ``bias`` (C,) of the weak classifier.

    From Knowledge Distillation to Self-Knowledge Distillation (Yang et al., 2023), arXiv 2303.13005.
    """

    def __init__(self, in_features: int, num_classes: int, *, alpha: float = 1.0, beta: float = 0.1, mu: float = 0.005):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.alpha, self.beta = check.number(self, "alpha", alpha), check.number(self, "beta", beta)
        self.mu = check.number(self, "mu", mu)
        weak = nn.Linear(in_features, num_classes)
        self.weight, self.bias = weak.weight, weak.bias

    def forward(self, features: Tensor, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "features", features, (None, self.in_features), features)
        check.values(self, "logits", logits, (features.shape[0], self.num_classes), features)
        right, share, whole = self._labels(target, logits)
        predicted = torch.log_softmax(accurate(logits), 1)
        with full_precision(features):
            weak = torch.log_softmax(F.linear(accurate(features), accurate(self.weight), accurate(self.bias)), 1)
        of_right = -(self._target(predicted.gather(1, right).exp(), share) * predicted.gather(1, right)).sum(1).mean()
        of_weak = -self.mu * ((0.9 * whole + 0.1 / self.num_classes) * weak).sum(1).mean()
        zipf = without(self._zipf(weak.detach().exp(), predicted.detach(), right), right)
        others = torch.log_softmax(without(accurate(logits), right), 1)
        of_others = -(zipf / zipf.sum(1, keepdim=True) * others).sum(1).mean()
        return (self.alpha * of_right + self.beta * of_others + of_weak).to(features.dtype)

    def _labels(self, target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The right classes (N, 1) or (N, 2), their shares, and the labels (N, C)."""
        if soft(self, target, logits):
            whole = accurate(target).to(accurate(logits).dtype)
            share, right = whole.sort(dim=1, descending=True, stable=True)
            return right[:, :2], share[:, :2], whole
        right = target.unsqueeze(1)
        share = torch.ones_like(right, dtype=accurate(logits).dtype)
        return right, share, F.one_hot(target, self.num_classes).to(share.dtype)

    @torch.no_grad()
    def _target(self, p: Tensor, share: Tensor) -> Tensor:
        confidence = p.square()
        return torch.where(share == 0, 0, confidence + share - confidence.mean(0))

    @torch.no_grad()
    def _zipf(self, weak: Tensor, predicted: Tensor, right: Tensor) -> Tensor:
        """One over the place of each class (N, C) in the common order of both classifiers."""
        known = weak / (1 - weak.gather(1, right).sum(1, keepdim=True) + 1e-6)
        score = known + predicted / (1 - predicted.gather(1, right).sum(1, keepdim=True) + 1e-6)
        place = score.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return 1 / (place + 1).to(weak.dtype)
