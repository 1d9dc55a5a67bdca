"""Latent attention: keys and values made of a few features a token, DeepSeek-V2's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.attention.core import softmax_attention
from normkit.residual.norms import NormName, make_norm
from normkit.transformer.attention import (
    KeysValues,
    LinearName,
    check_kind,
    check_samples,
    key_mask,
    make_linear,
    positions,
    restore_cache,
)


class LatentAttention(nn.Module):
    """Attention whose keys and values are made of a few features a token, which are all that a cache keeps.

        c, s = split(x Wcᵀ),    k_h, v_h = split(norm(c) Uhᵀ),    k_h = join(k_h, s)
        A(x) = join(softmax(q_h k_hᵀ / sqrt(head_dim + shared_dim)) v_h) Woᵀ

    DeepSeek-V2, arXiv 2405.04434, without positions, as Kimi Linear has it.

    Args:
        dim: features of the stream.
        heads: how many heads.
        rank: features of c, of which each head makes keys and values.
        head_dim, shared_dim, value_dim: features of a head's own keys, of s, which all heads share, of its values.
        query_rank: queries are made of so many normalized features; None: of x.
        norm: of c, and of those features, by name or as a function of the width.
        linear: the linear maps are of another kind than torch's.
        causal: position t sees positions s <= t.
    """

    turned = 0

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        rank: int,
        head_dim: int,
        shared_dim: int,
        value_dim: int,
        query_rank: int | None = None,
        norm: NormName = "rmsnorm",
        linear: LinearName = "linear",
        causal: bool = True,
    ):
        super().__init__()
        self.heads, self.causal = check.size(self, "heads", heads), bool(causal)
        self.rank, self.head_dim = check.size(self, "rank", rank), check.size(self, "head_dim", head_dim)
        self.shared_dim = check.size(self, "shared_dim", shared_dim)
        self.value_dim = check.size(self, "value_dim", value_dim)
        self.scale = (self.head_dim + self.shared_dim) ** -0.5
        width = self.heads * (self.head_dim + self.shared_dim)
        self.query_rank = None if query_rank is None else check.size(self, "query_rank", query_rank)
        if self.query_rank is None:
            self.query = make_linear(self, linear, dim, width, False)
        else:
            self.query_down = make_linear(self, linear, dim, self.query_rank, False)
            self.query_norm = make_norm(self, norm, self.query_rank)
            self.query_up = make_linear(self, linear, self.query_rank, width, False)
        self.down = make_linear(self, linear, dim, self.rank + self.shared_dim, False)
        self.norm = make_norm(self, norm, self.rank)
        self.up = make_linear(self, linear, self.rank, self.heads * (self.head_dim + self.value_dim), False)
        self.output = make_linear(self, linear, self.heads * self.value_dim, dim, False)

    @restore_cache
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: KeysValues | None = None,
        angles: Any = None,
        sphere: Any = None,
    ) -> Tensor:
        """Attend from every position of ``x`` (B, T, dim) to those it sees, of ``cache`` also; none is turned.

        ``mask`` is True where a key is seen, as :class:`~normkit.transformer.attention.Attention` takes it.
        """
        check_kind(self, cache, KeysValues)
        q = self.query(x) if self.query_rank is None else self.query_up(self.query_norm(self.query_down(x)))
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        c, shared = self.down(x).unsqueeze(1).split([self.rank, self.shared_dim], -1)
        c, past = self.norm(c), 0 if cache is None else cache.length
        if cache is not None:
            check_samples(self, cache.keys, x)
            c, shared = cache.extend(c, shared)
        both = self.up(c.squeeze(1)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = both.split([self.head_dim, self.value_dim], -1)
        k = torch.cat([k, shared.expand(-1, self.heads, -1, -1)], -1)
        seen = self._visible(mask, q, k, past)
        y = softmax_attention(q, k, v, seen, causal=self.causal and not past, scale=self.scale)
        return self.output(y.transpose(1, 2).flatten(2))

    def empty_cache(self) -> KeysValues:
        """Return a cache for :meth:`forward`, of the features that keys and values are made of."""
        return KeysValues()

    def _visible(self, mask: Tensor | None, q: Tensor, k: Tensor, past: int) -> Tensor | None:
        """The mask as :func:`softmax_attention` wants it, with what is earlier where a past stands before."""
        mask = key_mask(self, mask, q, k.shape[2])
        if not (self.causal and past):
            return mask
        at, key = positions(q, k, past)
        return key <= at if mask is None else mask & (key <= at)
