"""FixNorm: word vectors of one fixed length."""

from __future__ import annotations

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "fixnorm",
    paper="Improving Lexical Choice in Neural Machine Translation (Nguyen and Chiang, 2018), arXiv 1710.01329",
    shape="... C",
    over="C",
    invariant=("scale",),
)
class FixNorm(RowNorm):
    """Give every word vector the same fixed length, so that rare words do not lose by short vectors.

    For embedding tables, tied to the output or not; the table stays the caller's and its gradient is tangential. Over
    the last axis,

        y = scale * w / max(||w||, eps)

    Args:
        dim: size of the last axis.
        scale: the length.
        eps: the least length that is divided by; 0 is honoured.

    Used in Transformers without Tears (2019), arXiv 1910.05895; from Improving Lexical Choice in Neural Machine
    Translation (Nguyen and Chiang, 2018), arXiv 1710.01329.
    """

    def __init__(self, dim: int, *, scale: float = 1.0, eps: float = 1e-12):
        rule = ops.Row(eps=check.eps(self, eps), eps_place="floor", scale=check.number(self, "scale", scale))
        super().__init__(check.size(self, "dim", dim), rule, gain=None)
