"""What differential attention and its kin share: pairs of maps, the learned weight of the second, the norm behind."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.attention._heads import HeadNorm
from normkit.attention.core import AttentionCore, softmax_attention
from normkit.statistics import accurate


class DifferentialCore(AttentionCore):
    """Two softmax maps a head over values of twice the width; heads 2h and 2h + 1 of q and k belong to head h."""

    splits = 2
    place = {"depth": "layer"}
    lambda_query1: nn.Parameter
    lambda_key1: nn.Parameter
    lambda_query2: nn.Parameter
    lambda_key2: nn.Parameter

    def __init__(self, head_dim: int, heads: int, depth: int, causal: bool, eps: float):
        super().__init__(head_dim, heads, causal)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * check.size(self, "depth", depth, 0))
        for name in ("lambda_query1", "lambda_key1", "lambda_query2", "lambda_key2"):
            self.register_parameter(name, nn.Parameter(0.1 * torch.randn(head_dim)))
        self.norm = HeadNorm("rmsnorm", 2 * head_dim, check.eps(self, eps))

    def second_weight(self) -> Tensor:
        """The weight of the second map: exp(query1 · key1) - exp(query2 · key2) + the constant of the depth."""
        first = (accurate(self.lambda_query1) * accurate(self.lambda_key1)).sum()
        second = (accurate(self.lambda_query2) * accurate(self.lambda_key2)).sum()
        return first.exp() - second.exp() + self.start

    def _check_pairs(self, q: Tensor, k: Tensor, v: Tensor, *, same_length: bool = False) -> None:
        check.floating(self, q, "q")
        n = q.shape[0] if q.dim() else 0
        check.shape(self, "q", q, (n, 2 * self.heads, None, self.head_dim))
        check.values(self, "k", k, (n, 2 * self.heads, q.shape[2] if same_length else None, self.head_dim), q)
        check.values(self, "v", v, (n, self.heads, k.shape[2], 2 * self.head_dim), q)
        self._check_types(q, k=k, v=v)

    def _two_results(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What each map makes of the values, in at least float32: no map is ever formed."""
        # the fused kernels want q, k and v of one width; zeros change no score
        wide_q, wide_k = F.pad(q, (0, self.head_dim)), F.pad(k, (0, self.head_dim))
        if mask is not None and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask.repeat_interleave(2, -3)
        both = softmax_attention(
            wide_q, wide_k, v.repeat_interleave(2, 1), mask, causal=self.causal, scale=self.head_dim**-0.5
        )
        first, second = accurate(both).unflatten(1, (self.heads, 2)).unbind(2)
        return first, second

    def _finish(self, o: Tensor, dtype: torch.dtype) -> Tensor:
        return (self.norm(o) * (1 - self.start)).to(dtype)
