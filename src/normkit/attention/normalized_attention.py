"""Normalized attention: standardized scores in the place of probabilities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.attention._linear import accurate, hide, inverse
from normkit.attention._scores import keys_seen
from normkit.attention.core import AttentionCore, visible
from normkit.catalog import method
from normkit.statistics import full_precision, root


@method(
    "normalized-attention",
    paper="Normalized Attention Without Probability Cage (Richter and Wattenhofer, 2020), arXiv 2005.09561",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    example={"heads": 2},
    replaces=("softmax",),
)
class NormalizedAttention(AttentionCore):
    """Give the scores of each query mean ``bias`` and deviation ``weight``, and sum the values by them.

    For what an average of values cannot do: count, subtract, leave their convex hull. Its weights may be negative: for
    probabilities take ``softmax``.

    Over the n keys that query i sees, with l = q kᵀ (not divided by sqrt(head_dim)) and one gain and one shift a head,

        a = (l - mean(l)) / (std(l) + eps) * weight + bias,    y = a v

    The weights do not sum to 1: the result grows with the number of keys. The paper puts a LayerNorm over the joined
    heads and a GELU behind the core, before the output projection.

    Args:
        head_dim: features of a head.
        heads: number of heads; each has its own gain and shift, ``weight`` and ``bias`` of shape (heads,).
        causal: query i sees keys j <= i.
        eps: added to the deviation, biased, outside the root.

    ``core(q, k, v, mask=None)`` as :class:`~normkit.attention.softmax.Softmax`; a key that is not seen has weight 0. A
    query that sees one key gets ``bias * v`` and sends no gradient through its score.

    Normalized Attention Without Probability Cage (Richter and Wattenhofer, 2020), arXiv 2005.09561, there called NAP.

    Differs from the authors' code in: scores that are all equal send a gradient of 0, not NaN. Their version for
    graphs, with 1e-16 under the root, is not here.
    """

    def __init__(self, head_dim: int, *, heads: int, causal: bool = False, eps: float = 1e-3):
        super().__init__(head_dim, heads, causal)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(heads))
        self.bias = nn.Parameter(torch.zeros(heads))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, free_value=True)
        self._check_mask(mask, q, k)
        dtype, seen = q.dtype, visible(mask, self.causal, q.shape[2], k.shape[2], q.device)
        q, k, v = accurate(q, k, v)
        with full_precision(q):
            weights = self._standardize(q @ k.mT, seen)
            return (weights @ v).to(dtype)

    def _standardize(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        weight, bias = (p.to(scores.dtype).view(-1, 1, 1) for p in (self.weight, self.bias))
        number = keys_seen(seen, scores)
        centered = hide(scores - hide(scores, seen).sum(-1, keepdim=True) / number, seen)
        deviation = root(centered.square().sum(-1, keepdim=True) / number) + self.eps
        return hide(centered * inverse(deviation) * weight + bias, seen)
