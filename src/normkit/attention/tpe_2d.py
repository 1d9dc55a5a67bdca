"""2D-TPE: a table read row by row and column by column, mixed by a router."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.attention.core import AttentionCore, softmax_formula
from normkit.catalog import method
from normkit.kinds import LAYER
from normkit.layers import Linear
from normkit.ops.rope import rotate, turns
from normkit.statistics import accurate

LEAST = 1e-10  # of a share, under the entropy's logarithm


@method(
    "tpe-2d",
    paper="2D-TPE: Two-Dimensional Positional Encoding Enhances Table Understanding for Large Language Models "
    "(Li et al., 2024), arXiv 2409.19700",
    shape="N heads T C",
    over="S",
    inputs={
        "k": "N heads T C",
        "v": "N heads T C",
        "hidden": "N T 2C",
        "rows": "N T : index T",
        "columns": "N T : index T",
        "table": "N T : bool",
    },
    example={"heads": 2},
    aliases=("2d-tpe",),
    provenance="the authors' code nowhere defines the router's sizes: inner is this library's choice",
)
class TPE2D(AttentionCore):
    """Attend twice, with a table's tokens in the order of its rows and of its columns, and let each head choose.

    For language models that read tables. For text in one order take ``softmax``.

    With rotary positions of either order o, where token i sees token j if p_o(j) <= p_o(i),

        y_o = softmax(rope_o(q) rope_o(k)ᵀ / sqrt(head_dim)) v
        w = softmax(down(silu(gate(u)) * up(u))) over the two orders,        y = w_0 y_rows + w_1 y_columns

    per token and head, where u is the layer's input, split into heads. The mean entropy of w over the table's tokens
    is added to the loss, times 1: it makes each head choose. A sample without a table has the entropy 0.

    Args:
        head_dim: features of a head; even.
        heads: number of heads.
        inner: width of the router, ``head_dim`` by default.
        base: base of the rotary positions; features d and d + head_dim / 2 are a pair.

    ``core(q, k, v, hidden, rows, columns, table)``: q, k, v (N, heads, T, head_dim), ``hidden`` (N, T, heads *
    head_dim), ``table`` boolean (N, T) -> (y, entropy), the latter a single number. ``rows`` and ``columns`` are int64
    (N, T), the place of each token in either order.

    2D-TPE: Two-Dimensional Positional Encoding Enhances Table Understanding for Large Language Models (Li et al.,
    2024), arXiv 2409.19700.
    """

    kind = LAYER  # no decoder hands it the table's rows and columns
    forms = (True,)
    crossed = False
    masks = None
    further = ("hidden", "rows", "columns", "table")

    def __init__(self, head_dim: int, *, heads: int, inner: int | None = None, base: float = 10000.0):
        super().__init__(head_dim, heads, causal=True)
        if head_dim % 2:
            raise ValueError(f"TPE2D: head_dim must be even for a rotary embedding, not {head_dim}")
        self.base = check.number(self, "base", base, 0, open_low=True)
        inner = head_dim if inner is None else check.size(self, "inner", inner)
        self.gate = Linear(head_dim, inner, bias=False)
        self.up = Linear(head_dim, inner, bias=False)
        self.down = Linear(inner, 2, bias=False)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, rows: Tensor, columns: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend in both orders."""
        self._check(q, k, v, same_length=True)
        n, length = q.shape[0], q.shape[2]
        check.values(self, "hidden", hidden, (n, length, self.heads * self.head_dim), q)
        for name, order in (("rows", rows), ("columns", columns)):
            check.index(self, name, order, (n, length), length, q)
        check.mask(self, "table", table, (n, length), q)
        share = self._route(hidden)
        both = (self._attend(q, k, v, order) for order in (rows, columns))
        y = sum(w.unsqueeze(-1) * accurate(part) for w, part in zip(share.unbind(-1), both, strict=True))
        return y.to(q.dtype), self._entropy(share, table).to(q.dtype)  # type: ignore[union-attr]

    def _route(self, hidden: Tensor) -> Tensor:
        """The share of either order: (N, heads, T, 2)."""
        u = accurate(hidden).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        return torch.softmax(accurate(self.down(F.silu(self.gate(u)) * self.up(u))), -1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, order: Tensor) -> Tensor:
        """Softmax attention with the positions and the causality of an order."""
        q, k = (_rotate(x, order, self.base) for x in (q, k))
        seen = order.unsqueeze(1) <= order.unsqueeze(2)
        return softmax_formula(q, k, accurate(v), seen.unsqueeze(1))

    def _entropy(self, share: Tensor, table: Tensor) -> Tensor:
        """Mean over samples of the mean over the table's tokens and the heads."""
        c = share.clamp(LEAST, 1)
        each = -(c * c.log()).sum(-1).mean(1)
        inside = torch.where(table, each, 0).sum(1) / table.sum(1).clamp(min=1)
        return inside.mean()


def _rotate(x: Tensor, order: Tensor, base: float) -> Tensor:
    """Turn (N, heads, T, head_dim) by the places (N, T), in the accurate type."""
    x = accurate(x)
    cos, sin = turns(order.unsqueeze(1), x.shape[-1], base, x.dtype)
    return rotate(x, (cos, sin))
