"""Gated attention: softmax attention, its result multiplied by a gate."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.attention.core import AttentionCore, softmax_attention
from normkit.catalog import method


@method(
    "gated-attention",
    paper="Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free "
    "(Qiu et al., 2025), arXiv 2505.06708",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads S C", "v": "N heads S C", "gate": "N heads T C", "mask?": "N heads T S : bool"},
    example={"heads": 2},
    replaces=("softmax",),
)
class GatedAttention(AttentionCore):
    """Multiply each query's result of softmax attention by a sigmoid gate.

    For language models trained from scratch: a query can close its gate, so that no token must serve as a sink of
    attention. The paper has lower perplexity and larger learning rates that stay stable. ``attention-sinks`` needs one
    number a head instead of a projection.

    As in Qwen3-Next:

        y = softmax(q kᵀ / sqrt(head_dim)) v * sigmoid(gate)

    With ``norm``, each head's result is divided by sqrt(mean(y²) + eps) before the gate.

    Args:
        head_dim: features of a head.
        heads: number of heads of the queries; the gate has as many.
        causal: query i sees keys j <= i.
        scale: factor of the scores; None: 1 / sqrt(head_dim).
        norm: divide each head's result by its root mean square before the gate (Muse Spark).
        eps: added to the mean square.

    ``core(q, k, v, gate, mask=None)`` as :class:`~normkit.attention.softmax.Softmax`, v of head_dim features; ``gate``,
    before the sigmoid, is (N, heads, T, head_dim), or (N, heads, T, 1) for one gate a head. Its owner makes it by a
    linear map without bias from the hidden state that the queries come from; norms and rotary angles of queries and
    keys leave it alone.

    Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free (Qiu et al., 2025),
    arXiv 2505.06708.
    """

    further = ("gate",)

    scale: float | None = None  # pickles of before have none of these
    norm, eps = False, 1e-6

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        scale: float | None = None,
        norm: bool = False,
        eps: float = 1e-6,
    ):
        super().__init__(head_dim, heads, causal)
        self.scale = None if scale is None else check.number(self, "scale", scale, 0.0, open_low=True)
        self.norm, self.eps = bool(norm), check.eps(self, eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v)
        width = 1 if isinstance(gate, Tensor) and gate.dim() == 4 and gate.shape[-1] == 1 else self.head_dim
        check.values(self, "gate", gate, (*q.shape[:3], width), q)
        self._check_mask(mask, q, k)
        y = softmax_attention(q, k, v, mask, causal=self.causal, scale=self.scale)
        y = ops.row_norm(y, rule=ops.Row(center=False, eps=self.eps)) if self.norm else y
        return y * torch.sigmoid(gate).to(y.dtype)
