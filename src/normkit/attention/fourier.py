"""Fourier attention: scores without softmax, of normalized queries and keys."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.attention._coordinates import CoordinateCore
from normkit.attention._heads import HeadNorm
from normkit.attention._linear import accurate, count, hide
from normkit.catalog import method
from normkit.statistics import full_precision


@method(
    "fourier",
    paper="Choose a Transformer: Fourier or Galerkin (Cao, 2021), arXiv 2105.14995",
    shape="N heads T C",
    over="C",
    inputs={"k": "N heads T C", "v": "N heads T C", "pos": "N T 2", "mask?": "N 1 1 T : bool"},
    example={"heads": 2, "pos_dim": 2},
    replaces=("softmax", "galerkin"),
    invariant=("shift of q", "scale of q", "shift of k", "scale of k"),
)
class Fourier(CoordinateCore):
    """Normalize queries and keys head by head, and weigh the values by their product as it is, without a softmax.

    For operator learning: the tokens are the S points of a mesh. With ^ for layer norm and D = head_dim + pos_dim,

        y = (q^ k^ᵀ) v / (sqrt(D) * S)

    Args:
        head_dim: features of a head.
        heads: number of heads; each has its own gain and bias.
        norm: ``"layer"``, over the features of a token, or None.
        eps: added to the variance, under the root.
        pos_dim: number of coordinates of a token, put before the features of q^, k^ and v; 0 for none.
        causal: False; without a softmax a key is hidden for all queries or for none.

    ``core(q, k, v, pos=None, mask=None)``: q, k, v (N, heads, T, head_dim), ``pos`` (N, T, pos_dim) where ``pos_dim``
    is not 0; the result has head_dim + pos_dim features. ``mask`` broadcasts to (N, heads, 1, T) and is False at
    padding, which then enters neither the sum nor S.

    Choose a Transformer: Fourier or Galerkin (Cao, 2021), arXiv 2105.14995.

    Differs from the authors' code in: the product is taken as q^ (k^ᵀ v), the same numbers at a cost linear in S. No
    dropout on the scores (theirs drops half of them, in evaluation too). No ``norm="instance"``, where theirs loses the
    query.
    """

    forms = (False,)

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        norm: str | None = "layer",
        eps: float = 1e-5,
        pos_dim: int = 0,
        causal: bool = False,
    ):
        super().__init__(head_dim, heads, causal, pos_dim)
        self.norm = check.choice(self, "norm", norm, ("layer", None))
        eps = check.eps(self, eps)
        if norm is not None:
            self.query_norm = HeadNorm("layernorm", head_dim, eps, heads)
            self.key_norm = HeadNorm("layernorm", head_dim, eps, heads)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        self._check_pos(pos, q)
        dtype, seen = q.dtype, self._mask_of_keys(mask, q, k)
        q, k, v = accurate(q, k, v)
        if self.norm is not None:
            q, k = self.query_norm(q), self.key_norm(hide(k, seen))
        q, k, v = self._join(pos, q, k, v)
        with full_precision(q):
            product = hide(k, seen).mT @ hide(v, seen) / count(seen, k)
            return (q @ product * q.shape[-1] ** -0.5).to(dtype)
