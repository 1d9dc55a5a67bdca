"""CRMSNorm: RMSNorm of a zero-mean vector whose last entry is not stored."""

from __future__ import annotations

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "crmsnorm",
    paper="Pre-RMSNorm and Pre-CRMSNorm Transformers (Jiang, Gu, Zhu, Pan, 2023), arXiv 2305.14858",
    shape="... C-1",
    over="C-1",
    invariant=("scale",),
)
class CRMSNorm(RowNorm):
    """Divide a zero-mean vector, stored without its last entry, by the root mean square of the whole.

    For Pre-LN transformers that were converted exactly: the residual stream is centred once where it is written, its
    last entry is minus the sum of the rest and is dropped, and each LayerNorm becomes this. A model that was not
    converted takes ``rmsnorm``.

    Over the d - 1 stored entries,

        y = x / sqrt((sum(x²) + (sum x)²) / d + eps)

    Args:
        dim: the ORIGINAL width d; input and output have d - 1 features.
        eps: LayerNorm's, under the root; 0 is honoured.

    Pre-RMSNorm and Pre-CRMSNorm Transformers (Jiang, Gu, Zhu, Pan, 2023), arXiv 2305.14858.

    Differs from the authors' code in: the result is computed in the input's type, at least float32; theirs always in
    float32. Gain and shift belong to the next linear.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5):
        dim = check.size(self, "dim", dim, 2)
        super().__init__(dim - 1, ops.Row(statistic="zero-sum", eps=check.eps(self, eps)), gain=None)
