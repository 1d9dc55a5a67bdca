"""Query-key normalization: scores that cannot grow with the lengths of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.attention._heads import NORMS, HeadNorm
from normkit.attention.core import AttentionCore, softmax_attention
from normkit.catalog import method

EPS = {"l2": 1e-12, "layernorm": 1e-5, "rmsnorm": 1e-6}


@method(
    "qk-norm",
    paper="Query-Key Normalization for Transformers (Henry et al., 2020), arXiv 2010.04245",
    shape="N heads T C",
    over="C",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    aliases=("query-key-norm",),
    example={"heads": 2, "length": 10},
    replaces=("softmax",),
    invariant=("scale of q", "scale of k"),
)
class QKNorm(AttentionCore):
    """Normalize each head's queries and keys before their product, so that no score can outgrow a learned bound.

    Against scores that grow until training diverges. Where the forward pass must stay as it is, take ``qk-clip``.

    With ^ for the norm over the features of a head:

        norm="l2":           y = softmax(scale * q^ k^ᵀ) v,    q^ = q / max(|q|, eps);  scale is learned
        norm="layernorm":    y = softmax(q^ k^ᵀ / sqrt(head_dim)) v,    the norm with a gain and a shift
        norm="rmsnorm":      the same with a gain only

    Args:
        head_dim: features of a head.
        heads: number of heads.
        causal: query i sees keys j <= i.
        norm: ``"l2"``, the paper's; ``"layernorm"`` (ViT-22B) or ``"rmsnorm"`` (Qwen 3, Gemma 3), today's.
        length: for l2, the 97.5th percentile L of the training sequences' lengths; the scale starts at log2(L² - L).
        scale: for l2, what the scale starts at, instead of ``length``.
        eps: the least length that is divided by, or what is added under the root; by default 1e-12 for l2, 1e-5 for
            layernorm, 1e-6 for rmsnorm.

    ``core(q, k, v, mask=None)`` as :class:`~normkit.attention.softmax.Softmax`. A rotary embedding comes after the
    norm, so it belongs between this core's norms and its product: ``qkv-norm`` has it.

    Query-Key Normalization for Transformers (Henry et al., 2020), arXiv 2010.04245; layernorm: Scaling Vision
    Transformers to 22 Billion Parameters (Dehghani et al., 2023), arXiv 2302.05442.

    Differs from the authors' code in: a query that sees no key gives zero; theirs, which hides keys by -1e9, averages
    all.
    """

    scale: nn.Parameter

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        norm: str = "l2",
        length: float | None = None,
        scale: float | None = None,
        eps: float | None = None,
    ):
        super().__init__(head_dim, heads, causal)
        self.norm = check.choice(self, "norm", norm, ("l2", *NORMS))
        eps = EPS[norm] if eps is None else check.eps(self, eps)
        if norm == "l2":
            self.unit = ops.Row(eps=eps, eps_place="floor")
            self.scale = nn.Parameter(torch.tensor(self._start(length, scale)))
        else:
            self._refuse(length=length, scale=scale)
            self.query_norm = HeadNorm(norm, head_dim, eps)
            self.key_norm = HeadNorm(norm, head_dim, eps)

    def _start(self, length: float | None, scale: float | None) -> float:
        if (length is None) == (scale is None):
            raise ValueError(
                "QKNorm: norm='l2' needs either length, the 97.5th percentile of the sequence lengths, or scale, what "
                f"its learned scale starts at; they are length={length}, scale={scale}; norm='rmsnorm' needs neither"
            )
        if scale is not None:
            return check.number(self, "scale", scale)
        length = check.number(self, "length", length, 2.0)
        return math.log2(length * length - length)

    def _refuse(self, **given: float | None) -> None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"QKNorm: {name}={value} belongs to norm='l2'; norm={self.norm!r} has no learned scale"
                )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, free_value=True)
        self._check_mask(mask, q, k)
        if self.norm == "l2":
            q, k = ops.row_norm(q, self.scale, rule=self.unit), ops.row_norm(k, rule=self.unit)
            return softmax_attention(q, k, v, mask, causal=self.causal, scale=1.0)
        return softmax_attention(self.query_norm(q), self.key_norm(k), v, mask, causal=self.causal)
