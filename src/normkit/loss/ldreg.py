"""LDReg: representations kept from collapsing around each sample."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.loss._neighbours import ESTIMATORS, dimensions

CONSTANT = "the reference is a constant"
APART = "far from its reference, which should hold the features, all distances are nearly the same"


@method(
    "ldreg",
    paper="LDReg: Local Dimensionality Regularized Self-Supervised Learning (Huang et al., 2024), arXiv 2401.10474",
    shape="4N +",
    over="4N",
    inputs={"reference?": "8N +"},
    invariant=("shift", "scale", "rotation"),
    exempt={
        "gradcheck": CONSTANT,
        "higher-derivatives": CONSTANT,
        "offsets 1e4 results": APART,
        "offsets 1e6 results": APART,
        "empty": "fewer than 4 samples have no neighbourhood",
    },
)
class LDReg(Loss):
    """Raise the local dimension of features, by the geometric mean over samples.

    For self-supervised learning whose features lie in few directions around each sample, though those of the whole set
    span many. To measure that before training against it, take ``local-dimension``.

    It is added with a small weight to a self-supervised loss (0.01 for SimCLR, 0.005 for BYOL and MoCo, 5e-6 for MAE).
    It reads the encoder's features before the projector, both views of a batch under each other. With the dimension of
    ``local-dimension``,

        loss = - mean |log dimension|

    By ``"moments"``, samples whose neighbours are all equally far have an infinite dimension and no gradient.

    Args:
        k: which neighbour ends the neighbourhood.
        estimator: ``"moments"``, ``"moments-eps"`` or ``"mle"``.

    ``loss(features, reference=None)``: (N, ...), at least 4 samples, and (M, ...), in which the features must be: such
    as those of all processes, or with a momentum encoder's below them. Without one the features themselves. The
    reference carries no gradient.

    LDReg (Huang et al., 2024), arXiv 2401.10474. The form with squares is the same in the authors' code, which takes
    their root sample by sample.
    """

    def __init__(self, k: int = 64, *, estimator: str = "moments"):
        super().__init__()
        self.k = check.size(self, "k", k, least=2)
        self.estimator = check.choice(self, "estimator", estimator, ESTIMATORS)

    def forward(self, features: Tensor, reference: Tensor | None = None) -> Tensor:
        """Return the loss, a single number."""
        check.floating(self, features, "features")
        dims = dimensions(self, features, features if reference is None else reference, self.k, self.estimator)
        moves = (dims > 0) & dims.isfinite()
        known = torch.where(moves, dims, 1).log().abs()
        return -torch.where(moves, known, dims.detach().log().abs()).mean().to(features.dtype)
