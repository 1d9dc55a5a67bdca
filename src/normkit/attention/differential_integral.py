"""Differential-integral attention: what is subtracted of a row is added back, as an average of all rows."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.attention._differential import DifferentialCore
from normkit.attention._linear import count, hide
from normkit.attention.core import check_seen
from normkit.catalog import method


@method(
    "differential-integral",
    paper="DINT Transformer (Cang et al., 2025), arXiv 2501.17486",
    evidence="equations",
    shape="N 2heads T C",
    over="T C",
    inputs={"k": "N 2heads T C", "v": "N heads T 2C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2, "depth": 1},
    replaces=("softmax", "differential"),
    provenance="the paper's equations; headwise norm and its factor taken over from differential; no authors' code",
)
class DifferentialIntegral(DifferentialCore):
    """Subtract a second softmax map from the first and add the first's average row, so that rows sum to 1 again.

    For encoders with differential attention, whose rows should sum to 1 again: keys that are important to all queries
    are strengthened. It has no causal form, so a decoder stays with ``differential``.

    With lam, start and the two maps A1, A2 of ``differential`` and G the mean of A1 over the queries, the same row for
    all,

        o = (A1 - lam A2 + lam G) v,    y = (1 - start) * o / sqrt(mean(o²) + eps) * norm.weight

    G v is the mean of A1 v, so no map is ever formed.

    Args:
        head_dim: features of a head of q and k; those of v are twice as many.
        heads: number of heads of v and of the result; q and k have twice as many.
        depth: index of the layer, from 0.
        eps: added under the root.
        causal: False; the mean over all queries would let the future through.

    ``core(q, k, v, mask=None)``: q and k (N, 2 heads, T, head_dim), v (N, heads, T, 2 head_dim); the result is (N,
    heads, T, 2 head_dim). The mask broadcasts to (N, heads, 1, T) and is False at padding, which is neither seen as a
    key nor counted as a query.

    DINT Transformer (Cang et al., 2025), arXiv 2501.17486; from its equations, since there is no authors' code. The
    norm and its factor are those of the differential transformer.
    """

    forms = (False,)
    masks = "keys"
    crossed = False

    def __init__(self, head_dim: int, *, heads: int, depth: int, eps: float = 1e-5, causal: bool = False):
        super().__init__(head_dim, heads, depth, causal, eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check_pairs(q, k, v, same_length=True)
        check_seen(self, "mask", mask, "(N, heads, 1, T)", (q.shape[0], self.heads, 1, q.shape[2]), q)
        first, second = self._two_results(q, k, v, mask)
        tokens = None if mask is None else mask.expand(torch.broadcast_shapes(mask.shape, (1, q.shape[2]))).mT
        everywhere = hide(first, tokens).sum(2, keepdim=True) / count(tokens, first)
        return self._finish(first + self.second_weight().to(first.dtype) * (everywhere - second), q.dtype)
