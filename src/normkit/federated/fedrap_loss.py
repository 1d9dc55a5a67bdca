"""FedRAP's loss: ratings, two tables that are kept apart, and a common one that is kept sparse."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated.fedrap import PAPER
from normkit.kinds import Loss
from normkit.statistics import accurate

NORMS = ("l1", "l2", "nuclear", "max", "none")
LEAST = -100.0  # of a logarithm, as in torch's binary cross-entropy


@method(
    "fedrap-loss",
    paper=PAPER,
    shape="N : unit",
    over="",
    inputs={"target": "N : unit", "personal": "N C", "common": "N C"},
)
class FedRAPLoss(Loss):
    """Add to the cross-entropy of ratings a push apart of both embeddings, and a norm of the common one.

    For ``fedrap``. With all means over the rows of the batch,

        mean BCE(rating, target) - independence mean((personal - common)²) + sparsity R(common)

        l1: R = mean |c|,   l2: mean c²,   nuclear: the sum of the rows' singular values,   max: max |c|,   none: 0

    The second term has no bound and can win over the rest. The paper lets both weights grow with the round t,
    tanh(t / 10), which its code does not do.

    Args:
        independence: the weight of the push.
        sparsity: the weight of the norm.
        norm: which of the five.

    ``loss(rating, target, personal, common)``: (B,), (B,), (B, D), (B, D). A rating beyond [0, 1] counts as its end.

    Federated Recommendation with Additive Personalization (Li et al., 2024), arXiv 2301.09109.
    """

    def __init__(self, *, independence: float = 0.1, sparsity: float = 0.1, norm: str = "l1"):
        super().__init__()
        self.independence = check.number(self, "independence", independence)
        self.sparsity = check.number(self, "sparsity", sparsity)
        self.norm = check.choice(self, "norm", norm, NORMS)

    def forward(self, rating: Tensor, target: Tensor, personal: Tensor, common: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "rating", rating, (None,), rating)
        check.values(self, "target", target, rating.shape, rating)
        check.values(self, "personal", personal, (len(rating), None), rating)
        check.values(self, "common", common, personal.shape, rating)
        r, t, own, shared = (accurate(x) for x in (rating, target, personal, common))
        wrong = -(t * _log(r) + (1 - t) * _log(1 - r)).mean()
        apart = (own - shared).square().mean()
        return (wrong - self.independence * apart + self.sparsity * self._size(shared)).to(rating.dtype)

    def _size(self, c: Tensor) -> Tensor:
        if self.norm == "nuclear":
            return torch.linalg.matrix_norm(c, "nuc")
        if self.norm == "none" or not c.numel():
            return c.sum() * 0
        return c.abs().max() if self.norm == "max" else c.abs().mean() if self.norm == "l1" else c.square().mean()


def _log(p: Tensor) -> Tensor:
    """The logarithm, not below -100, of what is at most 1; that of NaN is NaN."""
    p = p.clamp(max=1)
    none = p <= 0
    return torch.where(none, LEAST, torch.where(none, 1, p).log()).clamp(min=LEAST)
