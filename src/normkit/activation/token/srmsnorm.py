"""SRMSNorm: the root mean square alone."""

from __future__ import annotations

from torch import nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "srmsnorm",
    paper="TransNormerLLM: Scaling TransNormer to 175 Billion Parameters (Qin et al., 2023), arXiv 2307.14995",
    shape="... C",
    over="C",
    replaces=("rmsnorm", "layernorm"),
    aliases=("simple-rmsnorm",),
    invariant=("scale",),
    peer=lambda dim: nn.RMSNorm(dim, eps=1e-6, elementwise_affine=False),
)
class SRMSNorm(RowNorm):
    """Divide each vector by its root mean square; nothing is learned.

    For transformers with linear attention, where it is in every place: before the blocks, at the end, and on the
    attention's output instead of the softmax denominator. Where a gain is wanted, take ``rmsnorm``.

    Over the last axis,

        y = x / sqrt(mean(x²) + eps)

    Args:
        dim: size of the last axis.
        eps: added to the mean square under the root; 0 is honoured.

    TransNormerLLM: Scaling TransNormer to 175 Billion Parameters (Qin et al., 2023), arXiv 2307.14995.

    Differs from the paper in: eps, which is the authors' code's.
    """

    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__(check.size(self, "dim", dim), ops.Row(eps=check.eps(self, eps)), gain=None)
