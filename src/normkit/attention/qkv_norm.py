"""Query-key-value normalization: the attention half of HybridNorm."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.attention._heads import NORMS, HeadNorm
from normkit.attention.core import AttentionCore, softmax_attention
from normkit.catalog import method
from normkit.ops.rope import Turns, turns_of


@method(
    "qkv-norm",
    paper="HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization (Zhuo et al., "
    "2025), arXiv 2503.04598",
    shape="N heads T C",
    over="C",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    example={"heads": 2},
    replaces=("softmax", "qk-norm"),
    invariant=("scale of q", "scale of k", "scale of v"),
)
class QKVNorm(AttentionCore):
    """Normalize each head's queries, keys and values, so that a block needs no norm in front of its attention.

    For blocks with no norm in front of their attention, as in ``hybridnorm``, whose feedforward part is post-norm. A
    pre-norm block needs ``qk-norm`` only: the norm of the values also takes their length away.

    With ^ for the norm over the features of a head,

        y = softmax(rope(q^) rope(k^)ᵀ / sqrt(head_dim)) v^,    x^ = x / sqrt(mean(x²) + eps) * weight

    The gain of v can be folded into the output projection after training, the division cannot: it depends on the token.

    Args:
        head_dim: features of a head; even with a rotary embedding.
        heads: number of heads; they share the gains.
        causal: query i sees keys j <= i.
        norm: ``"rmsnorm"`` or ``"layernorm"``, the latter with shifts.
        eps: added under the root.
        rope_base: base of a rotary embedding after the norm, of the halves of the features (i and i + head_dim / 2),
            with positions counted from the first query and the first key; None for none.

    ``core(q, k, v, mask=None)``: q (N, heads, T, head_dim), k and v (N, heads, S, head_dim); the mask is True where a
    query may see a key.

    HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization (Zhuo et al., 2025), arXiv
    2503.04598.

    Differs from the authors' code in: half precision is rounded once, after the gain.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        norm: str = "rmsnorm",
        eps: float = 1e-5,
        rope_base: float | None = None,
    ):
        super().__init__(head_dim, heads, causal)
        check.choice(self, "norm", norm, NORMS)
        self.rope_base = None if rope_base is None else check.number(self, "rope_base", rope_base, 0, open_low=True)
        if rope_base is not None and head_dim % 2:
            raise ValueError(f"QKVNorm: head_dim must be even for a rotary embedding, not {head_dim}")
        check.eps(self, eps)
        self.query_norm, self.key_norm, self.value_norm = (HeadNorm(norm, head_dim, eps) for _ in range(3))

    def no_past(self) -> str | None:
        """Why the keys of a past cannot stand before those of a call, in a user's words, or None if they can."""
        if self.rope_base is None:
            return None
        return (
            "with rope_base it counts positions from its first query; rope_base=None does not, and positions='rope' of "
            "the model turns instead"
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v)
        self._check_mask(mask, q, k)
        q, k = self.query_norm(q, self._angles(q)), self.key_norm(k, self._angles(k))
        v = self.value_norm(v)
        return softmax_attention(q, k, v, mask, causal=self.causal)

    def _angles(self, x: Tensor) -> Turns | None:
        return None if self.rope_base is None else turns_of(x, self.rope_base)
