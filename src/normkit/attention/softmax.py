"""Softmax attention: the baseline of the room."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.attention.core import AttentionCore, softmax_attention, softmax_formula, visible
from normkit.catalog import method


@method(
    "softmax",
    paper="Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762",
    evidence="library",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    example={"heads": 2},
)
class Softmax(AttentionCore):
    """Turn each query's scores into probabilities over the keys it sees, and average the values by them.

    For transformers, unless there is a reason against it: fused kernels run it, and pretrained models expect it. Its
    time grows with T S: for long sequences there are ``lightning`` and ``flow-attention``. Where scores grow until
    training diverges, take ``qk-norm``.

    The core that all others of this room are compared with, on torch's ``scaled_dot_product_attention``:

        y = softmax(q kᵀ * scale) v

    Args:
        head_dim: features of a head of q and k.
        heads: number of heads.
        causal: query i sees keys j <= i, counted from the first of each also where their numbers differ; a key-value
            cache needs an explicit mask.
        scale: replaces 1 / sqrt(head_dim).
        softcap: scores s become softcap * tanh(s / softcap), as in Gemma 2; None leaves them. No fused kernel knows it.

    ``core(q, k, v, mask=None)``: q (N, heads, T, head_dim), k and v (N, heads, S, head_dim); v may have another feature
    count, which the result then has. The mask is True where a query may see a key, and broadcasts to (N, heads, T, S);
    a query that sees none gets the zero vector and sends no gradient.

    Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
    ):
        super().__init__(head_dim, heads, causal)
        self.scale = None if scale is None else check.number(self, "scale", scale)
        self.softcap = None if softcap is None else check.number(self, "softcap", softcap, 0.0, open_low=True)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, free_value=True)
        self._check_mask(mask, q, k)
        if self.softcap is not None:
            seen = visible(mask, self.causal, q.shape[2], k.shape[2], q.device)
            return softmax_formula(q, k, v, seen, self.scale, self.softcap).to(q.dtype)
        return softmax_attention(q, k, v, mask, causal=self.causal, scale=self.scale)
