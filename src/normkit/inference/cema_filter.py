"""CEMA's filter: which samples of a stream are worth sending to the large model."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.inference.cema_loss import entropy
from normkit.kinds import Fitted


class Selection(NamedTuple):
    """Which samples are kept, and the entropy that they are below."""

    keep: Tensor
    high: Tensor


@method(
    "cema-filter",
    paper="Towards Robust and Efficient Cloud-Edge Elastic Model Adaptation via Selective Entropy Distillation (Chen "
    "et al., 2024), arXiv 2402.17316",
    shape="N C",
    over="N C",
    invariant=("shift",),
)
class CEMAFilter(Fitted):
    """Keep samples whose prediction is neither too unsure nor like those before it.

    For a small model at the edge that sends samples to a large one: what is too unsure misleads, what is alike teaches
    nothing new.

    Let H be the entropy, of C classes. A sample stays if low log C < H < bound. The bound is high log C, and once
    ``warmup`` samples were seen high log C (mean H so far / mean H then) factor. Of those, the first batch all stay,
    and later ones if their probabilities p have |cos(history, p)| < similarity; history = 0.9 history + 0.1 mean p of
    those that stayed.

    Args:
        num_classes: C.
        high: the upper bound, a share of the largest entropy.
        low: the lower bound; None: none.
        factor: of the upper bound after the warm-up.
        warmup: after how many samples the upper bound moves; None: never, as the authors release it.
        similarity: the largest cosine; None: probabilities are not compared.

    ``filter(logits)``, (N, C), moves the state and returns ``keep``, boolean (N,), and ``high``, the bound in force.
    State: ``entropy_sum``, ``count``, ``reference``, ``warm``, ``history`` (C,), ``started``.

    Towards Robust and Efficient Cloud-Edge Elastic Model Adaptation (Chen et al., 2024), arXiv 2402.17316.

    Differs from the authors' code in: low is also possible without high's moving.
    """

    entropy_sum: Tensor
    count: Tensor
    reference: Tensor
    warm: Tensor
    history: Tensor
    started: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        high: float = 0.4,
        low: float | None = None,
        factor: float = 0.6,
        warmup: int | None = None,
        similarity: float | None = 0.05,
    ):
        super().__init__()
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.high = check.number(self, "high", high, 0.0)
        self.low = None if low is None else check.number(self, "low", low)
        self.factor = check.number(self, "factor", factor, 0.0)
        self.warmup = None if warmup is None else check.size(self, "warmup", warmup, least=0)
        self.similarity = None if similarity is None else check.number(self, "similarity", similarity)
        for name in ("entropy_sum", "count", "reference"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("warm", torch.tensor(False))
        self.register_buffer("history", torch.zeros(num_classes))
        self.register_buffer("started", torch.tensor(False))

    @torch.no_grad()
    def forward(self, logits: Tensor) -> Selection:
        """Tell which of the samples (N, C) stay, and remember them."""
        wide = scores(self, "logits", logits, (None, self.num_classes), self.history)
        unsure, largest = entropy(wide), math.log(self.num_classes)
        bound = self._bound(unsure) * largest
        keep = unsure < bound
        if self.low is not None:
            keep = keep & (unsure > self.low * largest)
        if self.similarity is not None:
            keep = self._new(torch.softmax(wide, 1), keep, self.similarity)
        return Selection(keep, bound.to(logits.dtype))

    def _bound(self, unsure: Tensor) -> Tensor:
        """The upper bound, as a share of the largest entropy."""
        self.entropy_sum += unsure.sum()
        self.count += len(unsure)
        mean = self.entropy_sum / self.count.clamp(min=1)
        if self.warm:
            return self.high * mean / self.reference * self.factor
        if self.warmup is not None and len(unsure) and self.count >= self.warmup:
            self.reference.copy_(mean)
            self.warm.fill_(True)
            return self.high * mean / self.reference * self.factor
        return self.high * torch.ones_like(mean)

    def _new(self, p: Tensor, keep: Tensor, similarity: float) -> Tensor:
        """Leave out what is like before, and move the history."""
        if not keep.any():
            return keep
        if not self.started:
            self.history.copy_(p[keep].mean(0))
            self.started.fill_(True)
            return keep
        alike = torch.nn.functional.cosine_similarity(self.history.to(p.dtype).unsqueeze(0), p, dim=1).abs()
        keep = keep & (alike < similarity)
        if keep.any():
            self.history.copy_(0.9 * self.history + 0.1 * p[keep].mean(0))
        return keep
