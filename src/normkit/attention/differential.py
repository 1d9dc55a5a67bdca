"""Differential attention: the difference of two softmax maps."""

from __future__ import annotations

from torch import Tensor

from normkit.attention._differential import DifferentialCore
from normkit.attention.core import check_seen
from normkit.catalog import method


@method(
    "differential",
    paper="Differential Transformer (Ye et al., 2024), arXiv 2410.05258",
    shape="N 2heads T C",
    over="S C",
    inputs={"k": "N 2heads S C", "v": "N heads S 2C", "mask?": "N heads T S : bool"},
    example={"heads": 2, "depth": 1},
    replaces=("softmax",),
)
class Differential(DifferentialCore):
    """Subtract a second softmax map from the first, by a learned weight, and normalize each head's result.

    For language models that must find a few tokens in a long context, where softmax leaves weight on all others. What
    both maps attend to alike is noise, and cancels. It computes two maps, and their rows do not sum to 1; for an
    encoder ``differential-integral`` mends that.

    For head h, with q, k of the heads 2h and 2h + 1,

        lam   = exp(lambda_query1 · lambda_key1) - exp(lambda_query2 · lambda_key2) + start
        start = 0.8 - 0.6 exp(-0.3 depth)
        o = (softmax(q_{2h} k_{2h}ᵀ / sqrt(head_dim)) - lam softmax(q_{2h+1} k_{2h+1}ᵀ / sqrt(head_dim))) v
        y = (1 - start) * o / sqrt(mean(o²) + eps) * norm.weight

    The rows of the map sum to 1 - lam, and entries may be negative. Neither map is formed: torch's fused attention runs
    on both, and their results are subtracted.

    Args:
        head_dim: features of a head of q and k; those of v are twice as many. A model of width C with h heads has
            head_dim = C / (2h).
        heads: number of heads of v and of the result; q and k have twice as many.
        depth: index of the layer, from 0 (the paper counts from 1).
        causal: query i sees keys j <= i.
        eps: added under the root.

    ``core(q, k, v, mask=None)``: q (N, 2 heads, T, head_dim), k (N, 2 heads, S, head_dim), v (N, heads, S, 2 head_dim);
    the result is (N, heads, T, 2 head_dim). The mask broadcasts to (N, heads, T, S); a query that sees no key gives
    zero. The paper's rotary embedding, of neighbouring pairs, comes before the core (:func:`normkit.ops.rope.rope`).

    Differential Transformer (Ye et al., 2024), arXiv 2410.05258.

    Differs from the authors' code in: the exponentials of lam are taken in at least float32, not rounded to half
    precision.
    """

    def __init__(self, head_dim: int, *, heads: int, depth: int, causal: bool = True, eps: float = 1e-5):
        super().__init__(head_dim, heads, depth, causal, eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check_pairs(q, k, v)
        check_seen(self, "mask", mask, "(N, heads, T, S)", (q.shape[0], self.heads, q.shape[2], k.shape[2]), q)
        first, second = self._two_results(q, k, v, mask)
        return self._finish(first - self.second_weight().to(first.dtype) * second, q.dtype)
