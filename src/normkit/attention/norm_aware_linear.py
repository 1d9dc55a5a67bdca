"""Norm-aware linear attention: a feature map that keeps how sharp a long query is."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.attention._linear import LinearCore, accurate, count, grid, hide, inverse
from normkit.catalog import method
from normkit.ops.rope import Turns, rotate


@method(
    "norm-aware-linear",
    paper="NaLaFormer: Norm-Aware Linear Attention for Transformer Models (Meng et al., 2025), arXiv 2506.21137",
    shape="N heads T C",
    over="C",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class NormAwareLinear(LinearCore):
    """Raise the direction of each query to a power that grows with its length, so that long queries attend sharply.

    For vision transformers with so many tokens that attention has to be linear, and should still sharpen as queries
    grow longer. It has no causal form; a decoder takes ``lightning`` or ``flow-attention``.

    Linear attention loses the query's length, which in softmax attention is a temperature. With u = q / |q| and
    p = 3 (0.5 + tanh |q|), between 1.5 and 4.5,

        f(q) = [relu(u)^p, relu(-u)^p],    g(k) = [relu(k)³, relu(-k)³]
        y_i  = f'(q_i) (mean_j g'(k_j)ᵀ v_j) / (f(q_i) · mean_j g(k_j) + eps)

    f' and g' are f and g, or with ``size`` their rotation by the token's place on the grid, each half for itself: the
    first half of its pairs of features by the row, the second by the column.

    Args:
        head_dim: features of a head; divisible by 4 with ``size``.
        heads: number of heads.
        size: (H, W) of the token grid, read row by row, T = H * W; None for no rotary embedding.
        eps: added to the denominator.
        causal: False; there is no causal form.

    ``core(q, k, v, mask=None)``: all (N, heads, T, head_dim). ``mask`` broadcasts to (N, heads, 1, T), False at
    padding.

    NaLaFormer: Norm-Aware Linear Attention for Transformer Models (Meng et al., 2025), arXiv 2506.21137.

    Differs from the paper, as the authors' code does, in: directions are split into positive and negative parts instead
    of sines and cosines, and keys are cubed. Differs from the authors' code in: a query of zeros gives the zero vector,
    not NaN.
    """

    forms = (False,)

    def __init__(
        self, head_dim: int, *, heads: int, size: tuple[int, int] | None = None, eps: float = 1e-6, causal: bool = False
    ):
        super().__init__(head_dim, heads, causal)
        self.size = None if size is None else grid(self, size)
        if size is not None and head_dim % 4:
            raise ValueError(f"NormAwareLinear: head_dim must be divisible by 4 with size={self.size}, not {head_dim}")
        self.eps = check.eps(self, eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        if self.size is not None:
            check.shape(self, "q", q, (*q.shape[:2], self.size[0] * self.size[1], self.head_dim))
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        k, v, tokens = hide(k, seen), hide(v, seen), count(seen, k)
        queries, keys = [*_parts(_directions(q))], [*_parts(k.pow(3))]
        with statistics.full_precision(q):
            first, second = (a @ (b.sum(-2, keepdim=True) / tokens).mT for a, b in zip(queries, keys, strict=True))
            scale = inverse(first + second + self.eps)
            if self.size is not None:
                angles = self._angles(q)
                queries, keys = ([rotate(x, angles, "pairs") for x in both] for both in (queries, keys))
            first, second = (a @ (b.mT @ v / tokens) for a, b in zip(queries, keys, strict=True))
            return ((first + second) * scale).to(dtype)

    def _angles(self, x: Tensor) -> Turns:
        """What the first half of the pairs (2i, 2i + 1) is turned by, by row, and the second, by column."""
        assert self.size is not None
        height, width = self.size
        pairs = self.head_dim // 4
        rates = 10000.0 ** -torch.linspace(0, 1, pairs, device=x.device, dtype=x.dtype)
        rows, columns = (torch.arange(n, device=x.device, dtype=x.dtype)[:, None] * rates for n in self.size)
        rows = rows[:, None].expand(height, width, pairs)
        angles = torch.cat([rows, columns.expand(height, width, pairs)], -1).flatten(0, 1)
        return angles.cos(), angles.sin()


def _directions(q: Tensor) -> Tensor:
    """The entries of q / |q|, to the power that |q| gives, each with its sign."""
    largest = q.detach().abs().amax(-1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1)  # no square of a tiny or huge query leaves the range of the type
    scaled = q / largest
    norm = statistics.root(scaled.square().sum(-1, keepdim=True))
    power = 3 * (0.5 + torch.tanh(norm * largest))
    return _power(scaled * inverse(norm), power)


def _power(x: Tensor, power: Tensor) -> Tensor:
    """|x|^power with the sign of x; where x is 0 all derivatives are 0, of ``torch.pow`` some are NaN."""
    return (x.abs().masked_fill(x == 0, 1).log() * power).exp() * x.detach().sign()


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The positive part and the negative part."""
    return x.relu(), (-x).relu()
