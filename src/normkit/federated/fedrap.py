"""FedRAP: ratings from a user's own table of items and one that all share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate

PAPER = "Federated Recommendation with Additive Personalization (Li et al., 2024), arXiv 2301.09109"
NUMBERS = "items are whole numbers"


@method(
    "fedrap",
    paper=PAPER,
    shape="N : index 5",
    over="",
    example={"num_items": 5, "dim": lambda width: width},
    exempt={
        "extremes": NUMBERS,
        "vmap": NUMBERS,
        "checkpoint reentrant": NUMBERS,
        "half mixed": "the tables' type is the result's",
    },
)
class FedRAP(Method):
    """Rate items from the sum of a personal and a common embedding of each.

    For recommendation without sending ratings: a user is a client, keeps ``personal``, ``weight`` and ``bias``, and
    sends ``common``, which the server averages.

        rating = sigmoid(weight · (personal_i + common_i) + bias)

    Args:
        num_items: rows of both tables.
        dim: size of an embedding.

    ``fedrap(items)``: int64 (B,), any shape. Returns the rating (B,), and the rows ``personal`` and ``common`` (B, D)
    for ``fedrap-loss``. State: ``personal`` and ``common`` (items, D), standard normal; ``weight`` (D,), ``bias`` (1,).

    Federated Recommendation with Additive Personalization (Li et al., 2024), arXiv 2301.09109.
    """

    def __init__(self, num_items: int, dim: int):
        super().__init__()
        self.num_items, self.dim = check.size(self, "num_items", num_items), check.size(self, "dim", dim)
        self.personal = nn.Parameter(torch.randn(num_items, dim))
        self.common = nn.Parameter(torch.randn(num_items, dim))
        start = Linear(dim, 1)
        self.weight, self.bias = nn.Parameter(start.weight.detach()[0].clone()), start.bias

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ratings and rows of ``items``."""
        if isinstance(items, Tensor) and items.dim() == 0:
            raise ValueError(f"{type(self).__name__}: items must have one axis or more, but its shape is ()")
        check.index(self, "items", items, getattr(items, "shape", ()), self.num_items, self.weight)
        personal, common = self.personal[items], self.common[items]
        score = (accurate(personal) + accurate(common)) @ accurate(self.weight) + accurate(self.bias)
        return torch.sigmoid(score).to(personal.dtype), personal, common
