"""FedLoG's loss: two classifiers, one for nodes of many neighbours and one for nodes of few."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

PAPER = "Subgraph Federated Learning for Local Generalization (Kim et al., 2025), arXiv 2503.03995"


@method(
    "fedlog-branches",
    paper=PAPER,
    shape="N C",
    over="C",
    inputs={"tail_distance": "N C", "degree": "N", "target": "N : index C"},
    invariant=("shift",),
)
class FedLoGBranches(Method):
    """Weigh two classifiers' losses, and their probabilities, by how many neighbours a node has.

    For graphs: nodes of high degree, the head, are classified by their neighbours, those of low degree by themselves.
    With H, T the distances to the classes' prototypes,

        a = sigmoid(degree - threshold - 1)
        loss = - mean(a log_softmax(-H)[target] + (1 - a) log_softmax(-T)[target])
        prob = a softmax(-H) + (1 - a) softmax(-T)

    Args:
        threshold: the degree up to which a node is of the tail.

    ``loss(head_distance, tail_distance, degree, target)``: (N, C), (N, C), (N,) whole or real, and classes int64 (N,).
    Returns the loss, a single number, and probabilities (N, C).

    Subgraph Federated Learning for Local Generalization (Kim et al., 2025), arXiv 2503.03995.
    """

    def __init__(self, *, threshold: float = 3):
        super().__init__()
        self.threshold = check.number(self, "threshold", threshold)

    def forward(
        self, head_distance: Tensor, tail_distance: Tensor, degree: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the probabilities."""
        check.values(self, "head_distance", head_distance, (None, None), head_distance)
        check.values(self, "tail_distance", tail_distance, head_distance.shape, head_distance)
        check.flags(self, "degree", degree, head_distance.shape[:1], head_distance)
        check.index(self, "target", target, head_distance.shape[:1], head_distance.shape[1], head_distance)
        head, tail = (torch.log_softmax(-accurate(x), 1) for x in (head_distance, tail_distance))
        share = torch.sigmoid(accurate(degree.to(head.dtype)) - (self.threshold + 1)).unsqueeze(1)
        right = share * head.gather(1, target.unsqueeze(1)) + (1 - share) * tail.gather(1, target.unsqueeze(1))
        prob = share * head.exp() + (1 - share) * tail.exp()
        return -right.mean().to(head_distance.dtype), prob.to(head_distance.dtype)
