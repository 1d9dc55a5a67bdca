"""Galerkin attention: linear attention whose keys and values are normalized instead of its scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.attention._coordinates import CoordinateCore
from normkit.attention._heads import HeadNorm
from normkit.attention._linear import accurate, count, hide, inverse
from normkit.catalog import method


@method(
    "galerkin",
    paper="Choose a Transformer: Fourier or Galerkin (Cao, 2021), arXiv 2105.14995",
    shape="N heads T C",
    over="C",
    inputs={"k": "N heads T C", "v": "N heads T C", "pos": "N T 2", "mask?": "N 1 1 T : bool"},
    example={"heads": 2, "pos_dim": 2},
)
class Galerkin(CoordinateCore):
    """Normalize keys and values head by head, and multiply the queries by their averaged product.

    For operator learning: the tokens are the points of a mesh, and the cost is linear in their number. With ^ for the
    norm,

        y = q (k^ᵀ v^ / T)

    The full layer starts its projections at ``1e-4 * xavier_uniform + 1e-2 * identity`` with biases of 0, which the
    paper finds to matter, and has no layer norm before the attention.

    Args:
        head_dim: features of a head.
        heads: number of heads; each has its own gain and bias.
        norm: ``"layer"``, over the features of a token; ``"instance"``, over the tokens, for each feature; or None.
        eps: added to the variance, under the root.
        pos_dim: number of coordinates of a token, put before the features of q, k^ and v^; 0 for none.
        causal: False; the sum over all tokens has no causal form.

    ``core(q, k, v, pos=None, mask=None)``: q, k, v (N, heads, T, head_dim), ``pos`` (N, T, pos_dim) where ``pos_dim``
    is not 0; the result has head_dim + pos_dim features. ``mask`` broadcasts to (N, heads, 1, T) and is False at
    padding, which then enters neither the sum nor T.

    Choose a Transformer: Fourier or Galerkin (Cao, 2021), arXiv 2105.14995.

    Differs from the authors' code in: no dropout on the small matrix (theirs drops half of it, in evaluation too).
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
        self.norm = check.choice(self, "norm", norm, ("layer", "instance", None))
        self.eps = check.eps(self, eps)
        if norm is not None:
            self.key_norm, self.value_norm = (self._make_norm(norm) for _ in range(2))

    def _make_norm(self, norm: str) -> nn.Module:
        if norm == "layer":
            return HeadNorm("layernorm", self.head_dim, self.eps, self.heads)
        return _InstanceNorm(self.head_dim, self.heads, self.eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, pos: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        self._check_pos(pos, q)
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        k, v = hide(k, seen), hide(v, seen)
        if self.norm == "layer":
            k, v = self.key_norm(k), self.value_norm(v)
        elif self.norm == "instance":
            k, v = self.key_norm(k, seen), self.value_norm(v, seen)
        q, k, v = self._join(pos, q, k, v)
        with statistics.full_precision(q):
            product = hide(k, seen).mT @ hide(v, seen) / count(seen, k)
            return (q @ product).to(dtype)


class _InstanceNorm(nn.Module):
    """Normalize (N, heads, T, head_dim) over the tokens that are seen, with a gain and a bias a head."""

    def __init__(self, head_dim: int, heads: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, head_dim))
        self.bias = nn.Parameter(torch.zeros(heads, head_dim))

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        mean, var, _ = statistics.moments(x, (-2,), mask=seen)
        scale = inverse(statistics.root(var.unsqueeze(-2) + self.eps))
        weight, bias = (p.to(x.dtype).unsqueeze(-2) for p in (self.weight, self.bias))
        return (x - mean.unsqueeze(-2)) * (scale * weight) + bias
