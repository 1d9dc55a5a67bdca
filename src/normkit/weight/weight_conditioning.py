"""Weight conditioning: rows or columns of a weight with length 1, for a lower condition number."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.statistics import accurate

AXES = {"row": (1,), "column": (0,), "row_column": (1, 0)}


@method(
    "weight-conditioning",
    paper="Weight Conditioning for Smooth Optimization of Neural Networks (Saratchandran et al., 2024), "
    "arXiv 2409.03424",
    evidence="equations",
    shape="C I",
    over="I",
    example={"shape": lambda rows: (rows, 5)},
    invariant=("scale",),
    provenance="the paper's equations; no code is public",
)
class WeightConditioning(Parametrization):
    """Divide each row of a weight by its length.

    For a smoother loss: among all ways to scale the rows of a matrix this one comes within sqrt(rows) of the lowest
    condition number. With W the weight as a matrix (shape[0], the rest),

        row          W_i <- W_i / max(|W_i|, eps)
        column       the same of each column
        row_column   of each row, then of each column of the result

    There is no learned length; let a norm or a learned scale follow.

    Args:
        shape: of the weight.
        mode: which of the three; the paper's choice is ``"row"``.
        eps: floor of the lengths.

    Weight Conditioning for Smooth Optimization of Neural Networks (Saratchandran, Wang, Lucey, 2024), arXiv 2409.03424.
    """

    per_output = True
    projects = True

    def __init__(self, shape: Sequence[int], *, mode: str = "row", eps: float = 1e-12):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape, least=2)
        self.mode = check.choice(self, "mode", mode, tuple(AXES))
        self.eps = check.eps(self, eps)
        self.rule = ops.Row(eps=self.eps, eps_place="floor")

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        weight = accurate(raw).flatten(1)
        for axis in AXES[self.mode]:
            if axis == 1:
                weight = ops.row_norm(weight, rule=self.rule)
            else:
                weight = F.normalize(weight, dim=axis, eps=self.eps)
        return weight.view(self.shape).to(raw.dtype)
