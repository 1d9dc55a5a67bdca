"""Attention sinks: softmax attention with one learned logit more for each head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.attention.core import AttentionCore, visible
from normkit.catalog import method
from normkit.statistics import accurate, full_precision


@method(
    "attention-sinks",
    paper="gpt-oss-120b and gpt-oss-20b Model Card (OpenAI, 2025), arXiv 2508.10925",
    evidence="library",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    example={"heads": 2},
    replaces=("softmax",),
)
class AttentionSinks(AttentionCore):
    """Add one learned logit for each head to the softmax, which takes weight and gives no value.

    For language models whose heads would rest on the first token where they have nothing to look for.
    ``gated-attention`` serves the same end with a gate each query makes, at the price of a further projection.

    A head can so attend to nothing, and no token must serve as a sink. In gpt-oss; over the keys that query i sees,

        s = q kᵀ / sqrt(head_dim),    a_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij)),    y = a v

    Args:
        head_dim: features of a head.
        heads: number of heads of the queries, each with its sink.
        causal: query i sees keys j <= i.
        scale: factor of the scores s; None: 1 / sqrt(head_dim).

    ``core(q, k, v, mask=None)`` as :class:`~normkit.attention.softmax.Softmax`. State: ``sink`` (heads,), zeros; it is
    not multiplied by the scale, and at -inf the core is plain softmax. All scores are formed, so memory grows as T S.

    gpt-oss-120b and gpt-oss-20b Model Card (OpenAI, 2025), arXiv 2508.10925; the idea of a sink: Efficient Streaming
    Language Models with Attention Sinks (Xiao et al., 2023), arXiv 2309.17453.
    """

    scale: float | None = None  # pickles of before have none

    def __init__(self, head_dim: int, *, heads: int, causal: bool = False, scale: float | None = None):
        super().__init__(head_dim, heads, causal)
        self.scale = None if scale is None else check.number(self, "scale", scale, 0.0, open_low=True)
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, free_value=True)
        self._check_mask(mask, q, k)
        dtype, seen = q.dtype, visible(mask, self.causal, q.shape[2], k.shape[2], q.device)
        q, k, v = accurate(q), accurate(k), accurate(v)
        with full_precision(q):
            scores = q @ k.mT * (self.head_dim**-0.5 if self.scale is None else self.scale)
            scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
            return (self._weights(scores) @ v).to(dtype)

    def _weights(self, scores: Tensor) -> Tensor:
        """The keys' shares; a query that sees no key leaves all of it to the sink, which must be finite for that."""
        sink = self.sink.to(scores.dtype).clamp(min=torch.finfo(scores.dtype).min)
        sink = sink.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
