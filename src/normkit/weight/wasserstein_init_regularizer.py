"""The Wasserstein regularizer: the weights may change places, but keep the distribution that they began with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate
from normkit.weight._penalty import Penalty


@method(
    "wasserstein-init-regularizer",
    paper="Learning Continually by Spectral Regularization, version 1 (Lewandowski et al., 2024), arXiv 2406.06811v1",
    evidence="equations",
    shape="C I",
    over="C I",
    example={"shape": lambda rows: (rows, 5)},
    provenance="the definition; the authors' code is not public",
    exempt={"moves initial": "the distribution is that of the start"},
)
class WassersteinInitRegularizer(Penalty):
    """Penalize the distance between the distribution of a tensor's entries and the one that it began with.

    For long sequences of tasks: less binding than a pull of each entry to its own start, since an entry is pulled to
    the initial value of its rank only. With both sorted,

        loss = sum (sort(weight) - sort(initial))^2

    Args:
        shape: of the tensor, a weight or a bias; each has a regularizer of its own (``nk.weight.regularize``).
        reduction: ``"sum"``, or ``"mean"``, the squared 2-Wasserstein distance; which of them the authors have is
            not known.

    State: ``initial``, of that shape; zeros until :meth:`reset`.

    Learning Continually by Spectral Regularization, version 1 (Lewandowski et al., 2024), arXiv 2406.06811v1; first in
    Curvature Explains Loss of Plasticity (2023), arXiv 2312.00246.
    """

    initial: Tensor
    everywhere = True

    def __init__(self, shape: Sequence[int], *, reduction: str = "sum"):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.reduction = check.choice(self, "reduction", reduction, ("sum", "mean"))
        self.register_buffer("initial", torch.zeros(self.shape))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "weight", weight, self.shape, weight)
        now = accurate(weight).flatten().sort().values
        apart = (now - self.initial.flatten().sort().values.to(now.dtype)).square()
        return (apart.sum() if self.reduction == "sum" else apart.mean()).to(weight.dtype)

    @torch.no_grad()
    def reset(self, weight: Tensor) -> None:
        """Let the start be ``weight``."""
        check.values(self, "weight", weight, self.shape, weight)
        self.initial.copy_(weight)
